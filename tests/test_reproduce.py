"""The small commands of benchmarks/reproduce.md run as they stand, and the large ones ask by the same methods."""

import json
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvbind.bench.tasks import task_names
from kvbind.cli import main
from kvbind.cli.spellings import split_spellings
from kvbind.methods import factories, parse_method

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "benchmarks" / "reproduce.md").read_text("utf-8")
Command = list[str]


def commands(small: bool) -> list[Command]:
    """The page's commands as words, small or large ones, in order."""
    blocks = re.findall(rf"^```bash{' small' if small else ''}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines]


def runs(small: bool) -> list[Command]:
    return [command for command in commands(small) if command[:3] == ["kvbind", "bench", "run"]]


def given(command: Command, option: str) -> list[str]:
    return [value for name, value in pairwise(command) if name == f"--{option}"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the small models that the page makes."""
    root = tmp_path_factory.mktemp("reproduce")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.syspath_prepend(ROOT / "benchmarks")
        for python, script, *arguments in commands(small=True)[:3]:
            assert (python, script) == ("python", "benchmarks/tiny_model.py")
            patch.setattr(sys, "argv", [script, *arguments])
            runpy.run_path(str(ROOT / script), run_name="__main__")
        for command in commands(small=True)[3:]:
            if command[1] == "train" or command[1:3] == ["bench", "export"]:
                result = CliRunner().invoke(main, command[1:])
                assert result.exit_code == 0, result.output + repr(result.exception)
        yield root


@pytest.mark.parametrize("command", runs(small=True), ids=lambda command: given(command, "out")[0].split("/")[-1])
def test_small_runs_work(folder: Path, command: Command) -> None:
    result = CliRunner().invoke(main, [*command[1:], "--n", "1"])
    assert result.exit_code == 0, result.output + repr(result.exception)
    (out,) = given(command, "out")
    records = [json.loads(line) for line in (folder / out / "run.jsonl").read_text("utf-8").splitlines()]
    assert records
    assert not any("error" in record for record in records)
    assert {record["method"] for record in records} == set(split_spellings(given(command, "methods"), factories()))


def test_small_reports_work(folder: Path) -> None:
    """One with every figure that the page points to; the others differ in nothing but their runs."""
    reports = [command for command in commands(small=True) if command[:3] == ["kvbind", "bench", "report"]]
    assert {command[3] for command in reports} < {out for command in runs(small=True) for out in given(command, "out")}
    (figure_6,) = (command for command in reports if command[3].endswith("figure-6"))
    result = CliRunner().invoke(main, figure_6[1:])
    assert result.exit_code == 0, result.output + repr(result.exception)
    html = (folder / figure_6[3] / "report.html").read_text("utf-8")
    for title in ("F1 by method", "F1 against time to first token", "Template × two resolutions"):
        assert f"*{title}*" in PAGE
        assert re.search(rf"<figcaption>{title}.*</figcaption>", html), title


def test_large_runs_are_the_small_ones_with_other_models() -> None:
    small, large = runs(small=True), runs(small=False)
    assert [_methods(one) for one in small] == [_methods(one) for one in large]
    for one, other in zip(small, large, strict=True):
        assert given(one, "out")[0].replace("small/", "") in given(other, "out")[0]
        assert ("--forget" in one, "--forget" in other) == (True, True)


def _methods(command: Command) -> list[str]:
    """A run's methods, whatever folders trained ones lie in."""
    return [spelling.partition("adapter=")[0] for spelling in split_spellings(given(command, "methods"), factories())]


def test_what_large_runs_name_exists() -> None:
    for command in runs(small=False):
        for spelling in _methods(command):
            assert spelling.partition(":")[0] in factories()
            if not spelling.endswith(":"):
                parse_method(spelling)
    exports = re.findall(r'^export SIX="(?:\$SIX;)?(.*)"$', PAGE, re.MULTILINE)
    named = ";".join(exports).split(";")
    assert named == sorted(set(named), key=named.index) == [name for name in named if name in task_names()]
    assert len(named) == 6
