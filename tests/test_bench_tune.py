"""Questions of a user's own, the search over them, and what its numbers are taken to mean."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import Load
from conversations import CARD, DOCUMENTS
from kvbind import Bank, Engine
from kvbind.bench import tune as search
from kvbind.bench.candidates import PAGES, TEXT, candidates
from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.groups import joined
from kvbind.bench.questions import Question, draw, own_task, read_questions
from kvbind.bench.records import read_run
from kvbind.bench.run import Options, Progress
from kvbind.bench.tune import Search, beside, ends, tune
from kvbind.bench.verdicts import Findings, fewest_questions, judge, recommend
from kvbind.errors import BenchError, DocumentError
from test_bench_report import cost, record, timed, write_run

MARGIN = 5.0
ENOUGH = 30  # questions for it
FULL = {"name": "full", "write": None}
METHODS: Mapping[str, dict[str, Any]] = {
    "full": FULL | {"shown": ["text"]},
    "full:dpi=72": FULL | {"shown": ["page@72"]},
    "template": {"name": "template", "write": "template", "shown": ["text"]},
    "qv-pic": {"name": "qv-pic", "write": "template", "shown": ["page@72", "page@120"]},
}

# Questions


@pytest.mark.parametrize("name", ["asked.txt", "asked.jsonl", "asked.NDJSON"])
def test_questions_are_read_from_text_and_json_lines(tmp_path: Path, name: str) -> None:
    plain = name.endswith("txt")
    lines = ["Who? ", "", "Wann, ‚dann‘?"] if plain else ['{"question": " Who?"}', "", '{"question": "Wann, ‚dann‘?"}']
    (tmp_path / name).write_text("\ufeff" + "\r\n".join(lines), "utf-8")
    assert read_questions(tmp_path / name) == [Question(1, "Who?"), Question(3, "Wann, ‚dann‘?")]


def test_answers_and_documents_are_read(tmp_path: Path) -> None:
    lines = [
        {"question": "Who?", "answer": "Ellis", "documents": ["a", "b"], "more": 1},
        {"question": "Why?", "answers": ["So", "Thus"]},
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_questions(tmp_path / "q.jsonl") == [
        Question(1, "Who?", ("Ellis",), ("a", "b")),
        Question(2, "Why?", ("So", "Thus")),
    ]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("q.txt", b"\n \n", "holds no questions: give one a line"),
        ("q.txt", b"Who\xff", "not UTF-8 text \\(from byte 3\\): save it as UTF-8"),
        ("q.jsonl", b'{"question": "Who?"}\n{"question"\n', "q.jsonl:2: broken JSON .*: give one object a line"),
        ("q.jsonl", b'["Who?"]', 'q.jsonl:1: expected an object with a "question", a text'),
        ("q.jsonl", b'{"question": " "}', "expected an object"),
        ("q.jsonl", b'{"question": "Who?", "answer": 1874}', 'q.jsonl:1: "answers": expected texts, .*1874'),
        ("q.jsonl", b'{"question": "Who?", "answers": "x"}', '"answers": expected texts'),
        ("q.jsonl", b'{"question": "Who?", "answer": "x", "answers": []}', "give one of them"),
        ("q.jsonl", b'{"question": "Who?", "documents": []}', 'q.jsonl:1: "documents": expected texts'),
        (
            "q.jsonl",
            b'{"question": "Who?", "answer": "x"}\n{"question": "Why?"}',
            "1 of 2 questions have no answer, line 2 for one: give answers to all of them, or to none",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_a_line(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BenchError, match=says) as raised:
        read_questions(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"none\.txt: cannot be read \(No such file"):
        read_questions(tmp_path / "none.txt")


def test_fewer_questions_are_the_first_of_more() -> None:
    questions = [Question(line, str(line)) for line in range(1, 30)]
    assert draw(questions, 5, 0) == draw(questions, None, 0)[:5] != questions[:5]
    assert draw(questions, None, 0) != draw(questions, None, 1)
    with pytest.raises(BenchError, match="30 questions are asked for, there are 29"):
        draw(questions, 30, 0)


def test_a_task_of_own_questions_shows_named_or_most_relevant_documents(load: Load) -> None:
    engine = Engine(load("qwen2"))
    engine.compile(DOCUMENTS)
    asked = [Question(1, "Who saw the storm?", ("x",)), Question(4, "Why?", ("y",), ("dogs", "pier"))]
    task = own_task(engine, asked, top_k=1, max_tokens=7, source="q.txt")
    assert [[document.id for document in example.documents] for example in task.examples] == [
        ["storm"],
        ["dogs", "pier"],
    ]
    assert task.examples[1].documents[1] == DOCUMENTS[0]
    assert task.examples[0].text == task.examples[0].pages == Prompt("", "Who saw the storm?")
    assert (task.max_tokens, task.chat, [example.id for example in task.examples]) == (7, True, ["line-1", "line-4"])
    with pytest.raises(DocumentError, match="no document 'pear'"):
        own_task(engine, [Question(1, "Who?", (), ("pear",))], top_k=1, max_tokens=1, source="")


# Verdicts


def recorded(folder: Path, f1: Mapping[str, Sequence[float]], seconds: Mapping[str, float]) -> Any:
    """A run of one task by methods with these F1s, example by example, and times."""
    records = [
        record("questions", f"line-{number}", method, value, **timed(seconds[method]))
        for method, values in f1.items()
        for number, value in enumerate(values)
    ]
    records.sort(key=lambda one: one["example"])
    return joined([read_run(write_run(folder, {method: METHODS[method] for method in f1}, records))])


def found(folder: Path, template: Sequence[float], full: Sequence[float] = (), seconds: float = 0.5) -> Findings:
    f1 = {"full": full or [0.8] * len(template), "template": template}
    return recommend(recorded(folder, f1, {"full": 1.0, "template": seconds}), "questions", MARGIN)


def verdict(findings: Findings, method: str = "template") -> str:
    return next(one.verdict for one in findings.judged if one.row.method == method)


@pytest.mark.parametrize(
    ("margin", "questions"), [(2.0, 75), (5.0, 30), (7.0, 22), (1.0, 150), (25.0, 6), (50.0, 6), (100.0, 6)]
)
def test_a_small_margin_takes_many_questions(margin: float, questions: int) -> None:
    assert fewest_questions(margin) == questions


@pytest.mark.parametrize(
    ("f1", "expected"),
    [
        ([0.8] * ENOUGH, "within"),
        ([0.8] * (ENOUGH - 1), "not told"),
        ([0.9] * ENOUGH, "within"),
        ([0.76] * ENOUGH, "within"),
        ([0.7] * ENOUGH, "worse"),
        ([0.7] * 6, "worse"),
        ([0.7] * 5, "not told"),
        # A mean of -4.7 points, whose interval reaches -11.7: not known to be above -10.
        ([0.8] * 28 + [0.1] * 2, "not told"),
        # A mean of -6 points, whose interval holds -5.
        ([0.8] * 15 + [0.68] * 15, "not told"),
    ],
)
def test_a_method_is_judged_by_its_interval(tmp_path: Path, f1: list[float], expected: str) -> None:
    assert verdict(found(tmp_path / "run", f1)) == expected


def test_many_methods_tried_need_clearer_evidence(tmp_path: Path) -> None:
    """A mean of -4 points: the 95 % interval reaches to about -9, that for one of ten beyond -10."""
    noisy = [0.8] * 26 + [0.5] * 4
    assert verdict(found(tmp_path / "alone", noisy)) == "within"
    many = {f"dummy:k={k}": METHODS["template"] for k in range(1, 10)}
    f1 = {"full": [0.8] * ENOUGH, "template": noisy, **dict.fromkeys(many, [0.8] * ENOUGH)}
    methods = {"full": METHODS["full"], "template": METHODS["template"], **many}
    records = [record("questions", f"line-{n}", m, value) for m, values in f1.items() for n, value in enumerate(values)]
    records.sort(key=lambda one: one["example"])
    group = joined([read_run(write_run(tmp_path / "many", methods, records))])
    assert verdict(recommend(group, "questions", MARGIN)) == "not told"


def test_a_method_that_was_dropped_is_not_recommended(tmp_path: Path) -> None:
    """Not even where the full prefill that it was dropped for is dropped too."""
    few = [record("questions", f"line-{n}", m, 0.8) for n in range(10) for m in ("full", "template")]
    later = [record("questions", f"line-{n}", "full", 0.8) for n in range(10, ENOUGH)]
    first = write_run(tmp_path / "1", {m: METHODS[m] for m in ("full", "template")}, few)
    second = write_run(tmp_path / "2", {"full": METHODS["full"]}, later)
    best = recommend(joined([read_run(first), read_run(second)]), "questions", MARGIN)
    assert (verdict(best), best.method) == ("worse", "full")


def test_the_fastest_within_the_margin_is_recommended(tmp_path: Path) -> None:
    f1 = {"full": [0.8] * ENOUGH, "template": [0.8] * ENOUGH, "qv-pic": [0.78] * ENOUGH}
    group = recorded(tmp_path / "a", f1, {"full": 1.0, "template": 0.5, "qv-pic": 0.25})
    best = recommend(group, "questions", MARGIN)
    assert (best.method, best.proven, best.against) == ("qv-pic", True, "full")
    assert best.reason == "the fastest method within 5 points of full"
    assert [one.row.method for one in best.judged] == ["qv-pic", "template", "full"]
    assert best.judged[0].row.ratio is not None
    assert best.judged[0].row.ratio.interval.value == pytest.approx(0.25)
    lost = {**f1, "qv-pic": [0.5] * ENOUGH}
    group = recorded(tmp_path / "b", lost, {"full": 1.0, "template": 0.5, "qv-pic": 0.25})
    assert recommend(group, "questions", MARGIN).method == "template"


def test_full_prefill_is_recommended_where_reuse_is_slower_or_worse(tmp_path: Path) -> None:
    slower, worse = found(tmp_path / "a", [0.8] * ENOUGH, seconds=2.0), found(tmp_path / "b", [0.5] * ENOUGH)
    assert (slower.method, slower.reason) == ("full", "no method that reuses is faster")
    assert (worse.method, worse.proven) == ("full", True)
    assert worse.reason == "no method that reuses is within 5 points of full"


def test_too_few_questions_prove_nothing(tmp_path: Path) -> None:
    f1 = {"full": [0.8] * 8, "template": [0.8] * 8, "qv-pic": [0.8, 0.7] * 4}
    few = recommend(recorded(tmp_path / "a", f1, {"full": 1.0, "template": 0.5, "qv-pic": 0.2}), "questions", MARGIN)
    assert (few.method, few.proven) == ("template", False)
    assert few.reason.startswith("8 questions cannot tell a difference of 5 points, which takes 30 or more")
    unclear = found(tmp_path / "b", [0.8] * 28 + [0.1] * 2)
    assert (unclear.method, unclear.proven) == ("template", False)
    assert "over 30 questions no method that reuses is clearly within" in unclear.reason


def test_the_better_full_prefill_is_what_all_are_compared_with(tmp_path: Path) -> None:
    f1 = {"full": [0.6] * ENOUGH, "full:dpi=72": [0.8] * ENOUGH, "template": [0.6] * ENOUGH, "qv-pic": [0.78] * ENOUGH}
    group = recorded(tmp_path / "run", f1, {"full": 1.0, "full:dpi=72": 4.0, "template": 0.5, "qv-pic": 1.0})
    best = recommend(group, "questions", MARGIN)
    assert (best.against, best.method) == ("full:dpi=72", "qv-pic")
    assert (verdict(best), verdict(best, "full")) == ("worse", "worse")
    assert {one.row.method: one.ttft for one in best.judged}["template"] == pytest.approx(0.125)


def test_a_full_prefill_that_was_dropped_is_not_compared_with(tmp_path: Path) -> None:
    """It was lucky with the first questions, or asked fewer."""
    few = [record("questions", f"line-{n}", m, f) for n in range(10) for m, f in (("full", 0.7), ("full:dpi=72", 0.9))]
    later = [record("questions", f"line-{n}", "full", 0.7) for n in range(10, 20)]
    first = write_run(tmp_path / "1", {m: METHODS[m] for m in ("full", "full:dpi=72")}, few)
    second = write_run(tmp_path / "2", {"full": METHODS["full"]}, later)
    assert judge(joined([read_run(first), read_run(second)]), "questions", MARGIN)[0] == "full"


def test_failures_count_where_full_prefill_answered(tmp_path: Path) -> None:
    def fails(method: str, *examples: int) -> Any:
        records = [
            {"task": "questions", "example": f"line-{number}", "method": name, "documents": [], "error": "X: too long"}
            if (number in examples and name in (method, "template"))
            else record("questions", f"line-{number}", name, 0.8)
            for number in range(ENOUGH + 2)
            for name in ("full", "template")
        ]
        folder = write_run(
            tmp_path / f"{method}-{len(examples)}", {m: METHODS[m] for m in ("full", "template")}, records
        )
        return joined([read_run(folder)])

    assert verdict(recommend(fails("template", 3), "questions", MARGIN)) == "failed"
    assert verdict(recommend(fails("full", 3), "questions", MARGIN)) == "within"
    with pytest.raises(BenchError, match=r"full prefill answered no question \(X: too long\)"):
        judge(fails("full", *range(ENOUGH + 2)), "questions", MARGIN)


def test_a_cost_that_was_timed_once_stays_known(tmp_path: Path) -> None:
    """A later round finds the passages in the bank."""
    records = [record("questions", "line-1", method) for method in ("full", "template")]
    methods = {m: METHODS[m] for m in ("full", "template")}
    costs = [cost("d0"), cost("d1")]
    untimed = [cost("d0", seconds=None), cost("d1", seconds=None)]
    runs = [write_run(tmp_path / "1", methods, records, costs), write_run(tmp_path / "2", methods, [], untimed)]
    assert joined([read_run(run) for run in runs]).compile_seconds("d0", "template") == 1.0


# The search


def fake_run(asked: list[tuple[str, list[str], tuple[str, ...]]], f1: Mapping[str, float | None]) -> Any:
    """In place of a run: F1 by method, None where it fails, and what was asked."""

    def run(_: Any, tasks: Sequence[Task], options: Options, folder: Path, tell: Any = None) -> list[Any]:
        (task,) = tasks
        asked.append((folder.name, [example.id for example in task.examples], options.methods))
        records = [
            {"task": task.name, "example": example.id, "method": method, "documents": [], "error": "X: too long"}
            if (quality := f1[method]) is None
            else record(task.name, example.id, method, quality, prediction=f"word {example.id}")
            for example in task.examples
            for method in options.methods
        ]
        write_run(folder, {method: METHODS[method] for method in options.methods}, records)
        if tell:
            tell(Progress(len(task.examples), len(task.examples)))
        return records

    return run


def make_task(count: int, answers: tuple[str, ...] = ("a",)) -> Task:
    prompt = Prompt("", "Why?")
    examples = [Example(f"line-{n}", (), "Why?", prompt, prompt, answers) for n in range(count)]
    return Task("questions", examples, 4, "whole", "here")


def test_rounds_double() -> None:
    assert [ends(n) for n in (3, 10, 11, 40, 55)] == [[3], [10], [10, 11], [10, 20, 40], [10, 20, 40, 55]]


def test_what_is_clearly_worse_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str], tuple[str, ...]]] = []
    f1 = {"full": 0.8, "full:dpi=72": 0.4, "template": 0.8, "qv-pic": 0.6}
    monkeypatch.setattr(search, "run", fake_run(asked, f1))
    told: list[Progress] = []
    best = tune(Any, make_task(35), Search(tuple(f1), MARGIN), tmp_path, told.append)  # type: ignore[arg-type]
    assert [(name, len(examples), methods) for name, examples, methods in asked] == [
        ("round-1", 10, tuple(f1)),
        ("round-2", 10, ("full", "template")),
        ("round-3", 15, ("full", "template")),
    ]
    assert len({example for _, examples, _ in asked for example in examples}) == 35
    assert [(progress.done, progress.total) for progress in told] == [(10, 35), (20, 35), (35, 35)]
    assert (best.method, best.proven, best.questions, best.agreement) == ("full", True, 35, False)
    assert {one.row.method: one.row.examples for one in best.judged} == dict(zip(f1, (35, 10, 35, 10), strict=True))


def test_what_fails_is_asked_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str], tuple[str, ...]]] = []
    f1 = {"full": 0.8, "template": 0.8, "qv-pic": None}
    monkeypatch.setattr(search, "run", fake_run(asked, f1))
    best = tune(Any, make_task(20), Search(tuple(f1), MARGIN), tmp_path)  # type: ignore[arg-type]
    assert [methods for _, _, methods in asked] == [tuple(f1), ("full", "template")]
    assert best.judged[-1].verdict == verdict(best, "qv-pic") == "failed"


def test_a_search_ends_when_one_method_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str], tuple[str, ...]]] = []
    monkeypatch.setattr(search, "run", fake_run(asked, {"full": 0.8, "template": 0.1}))
    best = tune(Any, make_task(35), Search(("full", "template"), MARGIN), tmp_path)  # type: ignore[arg-type]
    assert [name for name, _, _ in asked] == ["round-1"]
    assert (best.method, best.proven, best.questions) == ("full", True, 10)


def test_without_answers_full_prefill_gives_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[str], tuple[str, ...]]] = []
    run, tasks = fake_run(asked, {"full": 1.0, "template": 0.9}), []

    def mute(engine: Any, given: Sequence[Task], *arguments: Any) -> list[Any]:
        tasks.append(given[0])
        records = run(engine, given, *arguments)
        return [{**one, "prediction": "The."} if one["example"] == "line-2" else one for one in records]

    monkeypatch.setattr(search, "run", mute)
    best = tune(Any, make_task(4, ()), Search(("full", "template"), MARGIN), tmp_path)  # type: ignore[arg-type]
    assert [(name, methods) for name, _, methods in asked] == [
        ("reference", ("full",)),
        ("round-1", ("full", "template")),
    ]
    # The second says nothing but an article: nothing can agree with that.
    assert [example.answers for example in tasks[1].examples] == [("word line-0",), ("word line-1",), ("word line-3",)]
    assert (best.agreement, best.questions, best.left_out) == (True, 3, 1)


def test_a_search_needs_a_margin_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchError, match="margin=0: give the points of F1"):
        Search(("full",), 0)
    failed = [{"task": "questions", "example": "line-0", "method": "full", "error": "PromptTooLongError: too long"}]
    monkeypatch.setattr(search, "run", lambda *_: failed)
    with pytest.raises(BenchError, match="answered no question \\(PromptTooLongError: too long\\)"):
        tune(Any, make_task(1, ()), Search(("full",), MARGIN), tmp_path)  # type: ignore[arg-type]


def test_the_tables_methods_exist_and_full_prefill_is_always_among_them(load: Load) -> None:
    text, vision = Engine(load("qwen2")), Engine(load("glm4v"), page=CARD)
    assert candidates(False) == ("full", *TEXT)
    assert candidates(True) == ("full", "full:dpi=72", *TEXT, *PAGES)
    assert candidates(True, ["template", "full"]) == ("full", "full:dpi=72", "template")
    assert all(text.method(spelling).representations for spelling in candidates(False))
    assert all(vision.method(spelling).representations for spelling in candidates(True))


def test_a_search_bank_knows_the_models_layers_and_nothing_else(load: Load) -> None:
    engine = Engine(load("qwen2"))
    engine.compile(DOCUMENTS, "qcfuse")
    engine.bank.set_setting(engine.library.profile_name, {"ranking": [2, 0, 1]})
    other = beside(engine, Bank.memory())
    assert other.library.ranked_layers == [2, 0, 1]
    assert other.bank.documents() == []
    assert beside(Engine(engine.backbone), Bank.memory()).library.ranked_layers == []
