"""`kvbind tune` from questions to a configuration, and `kvbind ask --config`, over tiny random models."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import kvbind.bench.run as runs
from kvbind import Bank
from kvbind.bench import tables
from kvbind.bench import tune as tuning
from kvbind.cli import main

TEXTS = {
    "house.txt": "The lighthouse was built in the year 1874, after three ships had been lost.",
    "keeper.txt": "Margaret Ellis kept two dogs, and a large collection of maps of the harbour.",
    "storm.txt": "The storm arrived on a Sunday, and the harbour master was the first to see it.",
}
QUESTIONS = ["Who saw it?", "What was built?", "Who kept dogs?", "When?", "How many ships?", "Which maps?", "And why?"]
EXACT = "cacheblend:ratio=1"  # computes everything anew: full prefill's own answers


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def refused(result: Result, says: str) -> None:
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert re.search(says, result.stderr), result.stderr


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, models: Callable[[str], Path]) -> Path:
    root = tmp_path_factory.mktemp("compiled")
    (root / "docs").mkdir()
    for name, text in TEXTS.items():
        (root / "docs" / name).write_text(text)
    done(run("compile", root / "docs", "--bank", root / "bank", "--model", models("qwen2")))
    return root / "bank"


@pytest.fixture
def bank(compiled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compiled, tmp_path / "bank"))


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    (tmp_path / "asked.txt").write_text("\n".join(QUESTIONS))
    return tmp_path / "asked.txt"


@pytest.fixture
def options(bank: Path, tmp_path: Path) -> list[Any]:
    return ["--bank", bank, "--out", tmp_path / "out", "--methods", EXACT, "--max-tokens", 6, "--margin", 25]


@pytest.fixture
def reuse_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times that do not depend on the machine: full prefill takes four times as long."""
    monkeypatch.setattr(tables, "warm_ttft", lambda record: 4.0 if record["method"] == "full" else 1.0)


def contents(bank: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done(run("bank", "stats", "--bank", bank, "--json")).stdout)
    return found


@pytest.mark.usefixtures("reuse_is_fast")
def test_from_questions_to_answers(questions: Path, options: list[Any], bank: Path, tmp_path: Path) -> None:
    before, out = contents(bank), tmp_path / "out"
    result = done(run("tune", questions, *options))
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0] == "7 questions; quality: agreement with full prefill over text; margin: 25 points"
    assert re.fullmatch(
        rf"{EXACT} +7 +100\.0 +\+0\.0 \[\+0\.0, \+0\.0\] +0\.25 +[\d.]+ kB +[\d,.]+ +within *", lines[2]
    )
    assert lines[3].split() == ["full", "7", "100.0", *"––––", "full", "prefill"]
    assert lines[4:] == [
        f"recommended: {EXACT} (the fastest method within 25 points of full)",
        f"wrote {out / 'config.json'}",
    ]
    assert contents(bank) == before
    config = json.loads((out / "config.json").read_text())
    assert (config["method"], config["evidence"]["proven"], config["evidence"]["questions"]) == (EXACT, True, 7)
    assert [row["verdict"] for row in config["evidence"]["methods"]] == ["within", "full prefill"]
    assert done(run("bench", "report", out / "round-1")).stdout.count("wrote") == 3

    answer = json.loads(
        done(run("ask", QUESTIONS[0], "--bank", bank, "--config", out / "config.json", "--json")).stdout
    )
    assert answer["method"] == "cacheblend"
    assert done(run("tune", questions, *options)).stdout == result.stdout


@pytest.mark.usefixtures("reuse_is_fast")
def test_what_is_proven_can_be_applied(questions: Path, options: list[Any], bank: Path) -> None:
    done(run("tune", questions, *options, "--apply"))
    assert contents(bank)["settings"]["method"] == EXACT
    assert json.loads(done(run("ask", "Who?", "--bank", bank, "--json")).stdout)["method"] == "cacheblend"


@pytest.mark.usefixtures("reuse_is_fast")
def test_what_is_not_proven_is_not_applied(questions: Path, options: list[Any], bank: Path, tmp_path: Path) -> None:
    result = done(run("tune", questions, *options, "--margin", 2, "--apply", "--n", 3))
    assert f"not proven: {EXACT} (3 questions cannot tell a difference of 2 points, which takes 75" in result.stdout
    assert result.stderr.startswith("warning: not applied")
    assert contents(bank)["settings"]["method"] == "template"
    assert json.loads((tmp_path / "out" / "config.json").read_text())["evidence"]["proven"] is False


def test_questions_that_full_prefill_says_nothing_to_are_counted(
    questions: Path, options: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, seen = tuning.longbench_tokens, iter(range(9))
    monkeypatch.setattr(tuning, "longbench_tokens", lambda text: tokens(text) if next(seen) else [])
    first = done(run("tune", questions, *options)).stdout.splitlines()[0]
    assert first.startswith(
        "6 questions; quality: agreement with full prefill over text (1 left out, to which that says"
    )


def test_answers_and_documents_are_taken_from_json_lines(options: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "asked.jsonl"
    file.write_text(
        "".join(json.dumps({"question": q, "answer": "x", "documents": ["storm.txt"]}) + "\n" for q in "ab")
    )
    assert "2 questions; quality: F1 to the answers" in done(run("tune", file, *options)).stdout
    assert not (tmp_path / "out" / "reference").exists()
    with Bank.open(tmp_path / "out" / "bank", create=False) as work:
        assert [info.id for info in work.documents()] == ["storm.txt"]


def test_an_interrupted_search_goes_on(
    questions: Path, options: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measure, count = runs.measure, iter(range(99))

    def stop(*arguments: Any, **more: Any) -> Any:
        if next(count) == 9:  # seven for the reference, two of the first round
            raise KeyboardInterrupt
        return measure(*arguments, **more)

    monkeypatch.setattr(runs, "measure", stop)
    result = run("tune", questions, *options)
    assert result.exit_code == 130
    assert result.stderr == "interrupted: 2 of 7 examples recorded; run the same command again to go on\n"
    kept = (tmp_path / "out" / "round-1" / "run.jsonl").read_bytes()
    done(run("tune", questions, *options))
    assert (tmp_path / "out" / "round-1" / "run.jsonl").read_bytes().startswith(kept)
    assert next(count) == 15, "what was recorded is not asked again"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--methods", "fool"], "unknown method 'fool'"),
        (["--methods", "template:dpi=72"], "reads text only"),
        (["--n", "9"], "9 questions are asked for, there are 7: ask for fewer"),
        (["--bank", "nowhere"], "nowhere"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(
    questions: Path, options: list[Any], given: list[str], says: str, tmp_path: Path
) -> None:
    refused(run("tune", questions, *options, *given), says)
    assert not (tmp_path / "out" / "config.json").exists()


def test_documents_that_the_bank_lacks_are_named_before_the_model_loads(options: list[Any], tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"question": "Who?", "documents": ["pier.txt"]}\n')
    refused(
        run("tune", tmp_path / "q.jsonl", *options, "--model", "none"), "q.jsonl:1: the bank has no document 'pier.txt'"
    )


# ask --config


def write(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps({"format": 1, "method": "dummy:k=2", **changes}))
    return path


def test_a_method_given_goes_before_the_configurations(bank: Path, tmp_path: Path) -> None:
    config = write(tmp_path / "config.json")
    asked = ("ask", "Who?", "--bank", bank, "--config", config, "--json")
    assert json.loads(done(run(*asked)).stdout)["method"] == "dummy"
    assert json.loads(done(run(*asked, "--method", "template")).stdout)["method"] == "template"


def test_a_configurations_pages_are_shown(compiled: Path, models: Callable[[str], Path], tmp_path: Path) -> None:
    asked = ("ask", "Who?", "--bank", tmp_path / "pages", "--docs", "house.txt", "--max-tokens", 1, "--json")
    done(run("compile", compiled.parent / "docs", "--bank", tmp_path / "pages", "--model", models("glm4v")))

    def rows(page: dict[str, Any]) -> int:
        config = write(tmp_path / "config.json", method="template:dpi=72", page=page)
        return int(json.loads(done(run(*asked, "--config", config)).stdout)["sources"][0]["rows"])

    assert rows({"font_size": 18, "line_height": 20, "width": 300}) > rows({"width": 300})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not JSON .*: give the config.json that `kvbind tune` wrote"),
        ("[]", 'expected "format": 1 and a "method"'),
        ('{"format": 2, "method": "template"}', 'expected "format": 1'),
        ('{"format": 1, "method": 3}', 'and a "method"'),
        ('{"format": 1, "method": "fool"}', "unknown method 'fool'"),
        ('{"format": 1, "method": "full", "page": 3}', '"page" is 3: expected an object'),
        ('{"format": 1, "method": "full", "page": {"ink": 3}}', "\"page\" has no 'ink'; it has width, height"),
        ('{"format": 1, "method": "full", "page": {"width": 3.5}}', '"page": width is 3.5, which it cannot be'),
        ('{"format": 1, "method": "full", "page": {"crop_width": 1}}', "crop_width is 1, which"),
        ('{"format": 1, "method": "full", "page": {"newline": "odd"}}', 'newline is "odd", which'),
        ('{"format": 1, "method": "full", "page": {"newline": []}}', r"newline is \[\], which"),
        ('{"format": 1, "method": "full", "page": {"font_size": true}}', "font_size is true, which"),
    ],
)
def test_a_wrong_configuration_is_refused_in_one_line(bank: Path, tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "config.json").write_text(content)
    refused(run("ask", "Who?", "--bank", bank, "--config", tmp_path / "config.json"), says)


def test_a_missing_configuration_is_named(bank: Path) -> None:
    refused(run("ask", "Who?", "--bank", bank, "--config", "none.json"), r"none\.json: cannot be read \(No such file")
