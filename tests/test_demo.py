"""The demonstration, with the reader that ships: what a newcomer sees in the first minute."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kvbind.cli import main
from kvbind.demo import read_notes, read_tasks
from kvbind.scores import longbench_f1

RIGHT = "By whom is the Gribais lamp manufactured?"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "bank"


@pytest.fixture(scope="module")
def first(bank: Path) -> str:
    return demo(bank)


def demo(bank: Path, *words: str) -> str:
    result = CliRunner().invoke(main, ["demo", "--bank", str(bank), *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_every_note_holds_the_answers_about_it() -> None:
    notes = {note.id: note.text for note in read_notes()}
    assert len(notes) == 12
    for task in read_tasks():
        assert task.notes is not None
        holding = [name for name in task.notes if task.answer and task.answer in notes[name]]
        assert len(holding) == 1


def test_answers_stand_beside_the_right_ones(first: str) -> None:
    for task in read_tasks():
        assert f"{task.question}  [{task.answer}]" in first
    for method in ("full", "template", "qv-pic"):
        assert len(re.findall(rf"^{method} ", first, re.MULTILINE)) == len(read_tasks()) + 1  # the last sums up


def test_the_sums_are_those_of_the_answers(first: str) -> None:
    answers, sums = first.split("All 6")
    for method in ("full", "template", "qv-pic"):
        lines = [line for line in answers.splitlines() if line.startswith(f"{method} ")]
        right = sum(f"  {task.answer}  " in line for line, task in zip(lines, read_tasks(), strict=True))
        assert re.search(rf"^{method} +{right} of 6 ", sums, re.MULTILINE)


def test_full_prefill_answers_rightly(first: str) -> None:
    given = [line for line in first.splitlines() if line.startswith("full ")][:-1]
    scores = [longbench_f1(line, [task.answer or ""]) > 0 for line, task in zip(given, read_tasks(), strict=True)]
    assert sum(scores) >= len(scores) - 1


def test_a_second_run_compiles_nothing(first: str, bank: Path) -> None:
    assert "12 passages compiled, 0 in the bank already" in first
    assert " 0 passages compiled, 12 in the bank already" in demo(bank, RIGHT)


def test_a_question_of_ones_own(first: str, bank: Path) -> None:
    output = demo(bank, RIGHT)
    assert "Kihat Works" in output
    assert "guesses" not in output


def test_a_question_about_nothing_in_the_notes_says_so(first: str, bank: Path) -> None:
    assert "no note is about 'What is the capital of France?': the answers are guesses" in demo(
        bank, "What is the capital of France?"
    )


def test_the_page_shows_what_the_model_saw(first: str, bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(click, "launch", opened.append)
    demo(bank, "--open", RIGHT)
    page = Path(opened[0]).read_text("utf-8")
    assert page.count("<img src='data:image/png;base64,") == 5
    assert "class='promoted'" in page
    assert "Kihat Works" in page
