"""What the docs say can be run, and what they link to is there."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conversations import CARD, DOCUMENTS
from kvbind import Engine, Method, Sampling, parse_method
from kvbind.methods import factories

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_the_guides_method_works_as_written(models: Callable[[str], Path]) -> None:
    (code,) = blocks(ROOT / "docs" / "guides" / "add-a-method.md", "python")
    names: dict[str, Callable[..., Method]] = {}
    exec(code, names)
    engine = Engine.from_pretrained(models("glm4v"), page=CARD)
    method = names["one_sharp_page"](CARD)
    answer = engine.ask("Who saw the storm on Tuesday?", DOCUMENTS, method=method, sampling=Sampling(max_tokens=2))
    assert [source.representation for source in answer.sources] == ["page@72", "page@144", "page@72"]
    low = engine.ask("Why?", DOCUMENTS, method="template:dpi=72", sampling=Sampling(max_tokens=2))
    assert [source.state for source in low.sources] == ["hit", "compiled now", "hit"], "equal passages are shared"


def test_the_readme_runs_the_tests_as_ci_does() -> None:
    commands = "".join(blocks(ROOT / "README.md", "bash"))
    ci = (ROOT / ".ci" / "run").read_text()
    assert "pip install -c constraints.txt -e" in commands
    for command in (".venv/bin/python -m pytest -n auto",):
        assert command in commands
        assert command in ci


def test_the_readmes_table_has_every_method() -> None:
    table = re.findall(r"^\| `([^`]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [spelling.partition(":")[0] for spelling in table] == list(factories())
    for spelling in table:
        if not spelling.endswith("adapter=DIR"):  # a folder that is trained first
            parse_method(spelling)


def test_the_readmes_python_names_exist() -> None:
    for block in blocks(ROOT / "README.md", "python"):
        compile(block, "README.md", "exec")
        imports = re.findall(r"^from kvbind import (.*)$", block, re.MULTILINE)
        for name in imports[0].split(", "):
            assert hasattr(__import__("kvbind"), name)
