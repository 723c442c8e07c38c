"""The reference pages are what the code says, and the public names are the promised ones."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import kvbind

SCRIPT = Path(__file__).parent.parent / "docs" / "generate_reference.py"
PUBLIC = [
    "Answer",
    "Bank",
    "Chat",
    "CompileReport",
    "Doc",
    "Document",
    "Engine",
    "KvbindError",
    "Message",
    "Method",
    "Page",
    "PageSpec",
    "Passage",
    "Sampling",
    "Selector",
    "Source",
    "Text",
    "Write",
    "parse_method",
    "read_documents",
]


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_public_names_are_the_promised_ones() -> None:
    assert kvbind.__all__ == PUBLIC


def test_reference_is_up_to_date(script: ModuleType) -> None:
    assert script.stale() == []
    assert script.run(["--check"]) == 0


def test_stale_pages_are_found_and_written_anew(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "FOLDER", tmp_path / "reference")
    assert script.run(["--check"]) == 1
    assert "stale: cli.md, python.md" in capsys.readouterr().out
    assert script.run([]) == 0
    assert script.run(["--check"]) == 0
    page = tmp_path / "reference" / "cli.md"
    page.write_text(page.read_text("utf-8") + "\n", "utf-8")
    assert script.stale() == ["cli.md"]


def test_reference_names_every_command_and_public_name(script: ModuleType) -> None:
    commands, names = script.cli_page(), script.python_page()
    for command in ("compile", "ask", "methods", "render", "bank ls", "bank stats", "bank verify", "bank rm"):
        assert f"## `kvbind {command}`\n" in commands
    for name in PUBLIC:
        assert f"## `{name}`\n" in names
