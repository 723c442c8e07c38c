"""`kvbind bench`, from the command to its files, over a tiny random vision model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import kvbind.bench.run as runs
from kvbind import Bank
from kvbind.bench.tasks import TaskOptions, load_task, task_names
from kvbind.cli import main
from kvbind.cli.spellings import split_spellings
from kvbind.methods import factories
from kvbind.train.data import read_data

METHODS = "full:dpi=72,template:dpi=72;qv-pic:alpha=.65,budget=1"
SPELLED = ["full:dpi=72", "template:dpi=72", "qv-pic:alpha=.65,budget=1"]
TASK = "biographies:notes=2"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *(str(argument) for argument in arguments)])


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


@pytest.fixture
def options(models: Callable[[str], Path], tmp_path: Path) -> list[Any]:
    """A run of two examples by three methods."""
    model = ["--model", models("glm4v"), "--bank", tmp_path / "bank", "--out", tmp_path / "out"]
    return [*model, "--methods", METHODS, "--tasks", TASK, "--n", 2, "--repeats", 1]


def test_from_a_run_to_its_report(options: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = done(run("run", *options))
    assert first.stdout == f"6 records in {out}, 0 of them failures: kvbind bench report {out}\n"
    assert first.stderr == ""
    before = (out / "run.jsonl").read_bytes()
    records = [json.loads(line) for line in before.splitlines()]
    assert [record["method"] for record in records] == SPELLED * 2
    assert {record["task"] for record in records} == {TASK}
    assert all(record["tokens"]["reused"] > 0 for record in records if record["method"] != "full:dpi=72")
    assert done(run("run", *options)).stdout == first.stdout
    assert (out / "run.jsonl").read_bytes() == before
    with Bank.open(tmp_path / "bank", create=False) as bank:
        assert len(bank.documents()) == 4

    written = done(run("report", out, "--out", tmp_path / "report")).stdout
    assert written == "".join(f"wrote {tmp_path / 'report' / f'report.{kind}'}\n" for kind in ("md", "csv", "html"))
    assert "| qv-pic:alpha=.65,budget=1 | 2 |" in (tmp_path / "report" / "report.md").read_text()
    done(run("report", out))
    assert (out / "report.html").read_bytes() == (tmp_path / "report" / "report.html").read_bytes()


def test_an_interrupted_run_says_how_far_it_came(
    options: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, count = runs.measure, iter(range(9))

    def stop(*arguments: Any, **more: Any) -> Any:
        if next(count) == 1:
            raise KeyboardInterrupt
        return measure(*arguments, **more)

    monkeypatch.setattr(runs, "measure", stop)
    result = run("run", *options)
    assert result.exit_code == 130
    assert result.stderr == "interrupted: 1 of 2 examples recorded; run the same command again to go on\n"
    assert done(run("run", *options)).stdout.startswith("6 records")


def test_another_run_in_the_same_folder_is_refused(options: list[Any], tmp_path: Path) -> None:
    done(run("run", *options))
    refused(
        run("run", *options, "--seed", 1), "holds another run (other tasks, seed: 0 there, 1 here)", "another --out"
    )


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (["--methods", "fool"], "unknown method 'fool'"),
        (["--tasks", "hotpot"], "unknown task 'hotpot': `kvbind bench tasks` lists them"),
        (["--tasks", "musique"], "musique"),
        (["--bank", __file__], "is a file, not a bank"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(
    options: list[Any], given: list[str], word: str, tmp_path: Path
) -> None:
    refused(run("run", *options, *given), word)
    assert not (tmp_path / "out" / "run.jsonl").exists()


def test_a_text_model_refuses_pages(options: list[Any], models: Callable[[str], Path]) -> None:
    refused(run("run", *options, "--model", models("qwen2")), "reads text only")


def test_what_must_be_given_is_asked_for(options: list[Any], tmp_path: Path) -> None:
    assert run("run", "--methods", "full", "--tasks", TASK).exit_code == 2
    assert run("run", "--out", tmp_path, "--tasks", TASK).exit_code == 2
    refused(run("report", tmp_path / "none"), "holds no run", "kvbind bench run --out")


def test_tasks_are_listed() -> None:
    lines = done(run("tasks")).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(task_names())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["full;template"], ["full", "template"]),
        (["full,template,full"], ["full", "template"]),
        (["full", "dummy:8"], ["full", "dummy:8"]),
        ([METHODS], SPELLED),
        (["qv-pic:alpha=.5,template=off,full:72"], ["qv-pic:alpha=.5,template=off", "full:72"]),
        (["qv-pic:alpha=.5,template,dummy:k=2,dpi=72"], ["qv-pic:alpha=.5", "template", "dummy:k=2,dpi=72"]),
        (["full, fool ,template"], ["full", "fool", "template"]),
        (["qv-pic:alpha=.5;budget=2"], ["qv-pic:alpha=.5", "budget=2"]),
        ([" ; ,"], []),
    ],
)
def test_spellings_are_split_where_they_end(given: list[str], expected: list[str]) -> None:
    assert split_spellings(given, factories()) == expected


def test_a_tasks_examples_become_training_data(models: Callable[[str], Path], tmp_path: Path) -> None:
    out = tmp_path / "notes.jsonl"
    task = "biographies:notes=3,split=train,instruct=on"
    said = done(run("export", task, "--model", models("glm4v"), "--n", 4, "--seed", 5, "--out", out)).stdout
    assert said == f"wrote 4 examples to {out}\n"
    (read,) = read_data([out], held_out=0)
    options = TaskOptions(data=None, n=4, seed=5, window=4096, encode=lambda text: [], decode=lambda ids: "")
    examples = load_task(task, options).examples
    assert [example.question for example in read.training] == [example.text.after for example in examples]
    assert [example.answers for example in read.training] == [example.answers for example in examples]
    assert [len(example.documents) for example in read.training] == [3] * 4
    held = {
        document.text
        for example in load_task("biographies:notes=3", options).examples
        for document in example.documents
    }
    assert not held & {text for example in read.training for text in example.documents}
    refused(run("export", "biographies:split=test", "--model", models("glm4v"), "--out", out), "split=test")
