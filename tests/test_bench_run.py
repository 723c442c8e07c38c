"""Benchmark runs over tiny models: what is asked and recorded, interruption, and other configurations."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import Load
from conversations import CARD, DOCUMENTS
from kvbind import Bank, Doc, Document, Engine, Message, Sampling
from kvbind.bank.store import DirectoryStore
from kvbind.bench import measure
from kvbind.bench.cold import DROPPED, IN_MEMORY, NO_CALL, STILL_THERE, cached_pages, chill, heat
from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.groups import gather
from kvbind.bench.records import COSTS, RECORDS, read_run
from kvbind.bench.run import Options, Progress, run
from kvbind.bench.tables import rows
from kvbind.chat import Chat
from kvbind.errors import BankError, BenchError, PromptTooLongError
from kvbind.steps.library import Library

METHODS = ("full", "template", "full:dpi=72", "template:dpi=72", "qv-pic:budget=1", "epic:k=1")
OPTIONS = Options(METHODS, repeats=2)
FEW = Options(("full:dpi=72", "qv-pic:budget=1"), repeats=2)
TEXT, PAGES = Prompt("These are notes.\n", "\nWho?"), Prompt("These are pages.\n", "\nWho, in short?")


def make_example(name: str, *places: int, **facts: Any) -> Example:
    documents = tuple(DOCUMENTS[place] for place in places)
    return Example(name, documents, "Who saw the storm?", TEXT, PAGES, ("the harbour master",), (0,), facts)


def make_task(name: str, *examples: Example, chat: bool = True) -> Task:
    return Task(name, examples, 4, "whole notes", "made by hand", chat=chat)


TASKS = [
    make_task("notes", make_example("a", 1, 2, kind="short"), make_example("b", 2, 0, 1)),
    make_task("raw", make_example("a", 1, 0), chat=False),
]


@pytest.fixture(scope="module")
def recorded(load: Load, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run, with its bank beside it: not to be written to."""
    root = tmp_path_factory.mktemp("recorded")
    with Bank.open(root / "bank") as bank:
        run(Engine(load("glm4v"), bank, page=CARD, source="tiny"), TASKS, OPTIONS, root / "out")
    return root


@pytest.fixture
def engine(load: Load, tmp_path: Path) -> Iterator[Engine]:
    with Bank.open(tmp_path / "bank") as bank:
        yield Engine(load("glm4v"), bank, page=CARD, source="tiny")


Asked = list[tuple[str, str]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Task/example and method of every request, in order."""
    seen: Asked = []
    ask = measure._ask

    def note(bench: Any, task: Task, example: Example, trial: measure.Trial, max_tokens: int) -> Any:
        seen.append((f"{task.name}/{example.id}", trial.spelling))
        return ask(bench, task, example, trial, max_tokens)

    monkeypatch.setattr(measure, "_ask", note)
    return seen


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def by_name(records: list[dict[str, Any]], task: str, example: str) -> dict[str, dict[str, Any]]:
    return {r["method"]: r for r in records if (r["task"], r["example"]) == (task, example)}


def pages_in_memory(path: Path) -> int:
    with path.open("rb") as file:
        return cached_pages(file.fileno())


# What is recorded


def test_every_example_is_recorded_by_every_method(recorded: Path) -> None:
    records = read_run(recorded / "out").records
    places = [("notes", "a"), ("notes", "b"), ("raw", "a")]
    assert [(r["task"], r["example"], r["method"]) for r in records] == [(*p, m) for p in places for m in METHODS]
    assert lines(recorded / "out" / RECORDS) == records
    first = records[0]
    assert (first["facts"], first["gold"], first["chunking"]) == ({"kind": "short"}, [0], "whole notes")
    assert set(first["versions"]) == {"kvbind", "torch", "transformers"}
    assert first["device"].startswith("cpu, ")


def test_answers_are_those_of_the_engine(engine: Engine, recorded: Path) -> None:
    records = by_name(read_run(recorded / "out").records, "notes", "b")
    docs = [Doc(document.id) for document in TASKS[0].examples[1].documents]
    for document in DOCUMENTS:
        engine.add(document)
    for method, prompt in (("template", TEXT), ("qv-pic:budget=1", PAGES), ("full:dpi=72", PAGES)):
        answer = engine.ask(
            [Message("user", [prompt.before, *docs, prompt.after])],
            method=method,
            query="Who saw the storm?",
            sampling=Sampling(max_tokens=4),
        )
        assert records[method]["ids"] == list(answer.ids)
        assert records[method]["prediction"] == answer.text
        assert records[method]["shown"] == dict(Counter(source.representation for source in answer.sources))


def test_templates_are_left_out_where_the_task_says_so(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw: list[bool] = []
    ask = Chat.ask
    monkeypatch.setattr(Chat, "ask", lambda self, *a, **k: (raw.append(self.raw), ask(self, *a, **k))[1])
    run(engine, TASKS, Options(("template",), repeats=1), tmp_path / "out")
    assert raw == sorted(raw), "first the task with a template, then the one without"
    assert set(raw) == {True, False}
    raw.clear()
    run(engine, TASKS, Options(("template:dpi=72",), repeats=1), tmp_path / "pages")
    assert set(raw) == {False}, "page images are part of a message"


def test_hits_reuse_everything_and_full_prefill_nothing(recorded: Path) -> None:
    found = by_name(read_run(recorded / "out").records, "notes", "b")
    for method, record in found.items():
        assert len(record["ttft"]["warm"]) == 2
        assert sum(record["steps"]["warm"].values()) == pytest.approx(sum(record["ttft"]["warm"]) / 2)
        assert record["tokens"]["generated"] == len(record["ids"])
        reused = method not in ("full", "full:dpi=72")
        assert (record["tokens"]["reused"] > 0, record["bytes"] > 0) == (reused, reused)
        assert (record["recomputed"] > 0) == method.startswith("epic")
        assert record["tokens"]["compiled"] == 0


def test_bytes_are_those_of_the_records_taken(recorded: Path) -> None:
    record = by_name(read_run(recorded / "out").records, "notes", "b")["template"]
    costs = {
        c["document"]: c for c in lines(recorded / "out" / COSTS) if (c["write"], c["shown"]) == ("template", "text")
    }
    assert record["bytes"] == sum(costs[document]["bytes"] for document in record["documents"])
    sizes = [file.stat().st_size for file in (recorded / "bank" / "passages").rglob("*.safetensors")]
    assert all(cost["bytes"] in sizes for cost in costs.values())


def test_methods_take_turns(engine: Engine, tmp_path: Path, asked: Asked) -> None:
    records = run(engine, TASKS[:1], OPTIONS, tmp_path / "out")
    first, rounds = ([method for place, method in asked if place == f"notes/{name}"] for name in "ab")
    assert first[: len(METHODS)] == list(METHODS), "each asks once unmeasured"
    assert len(first) == len(METHODS) + len(rounds)
    for start in range(0, 2 * len(METHODS), len(METHODS)):
        assert sorted(rounds[start : start + len(METHODS)]) == sorted(METHODS)
    cold = any(record["ttft"]["cold"] is not None for record in records)
    assert Counter(rounds) == dict.fromkeys(METHODS, 2 + cold), "where one is cold, that round is warm for none"
    assert {len(record["ttft"]["warm"]) for record in records} == {2}


def test_a_method_that_failed_at_first_is_made_ready_later(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    ask = measure._ask

    def refuse(bench: Any, task: Task, example: Example, *rest: Any) -> Any:
        if example.id == "a":
            raise PromptTooLongError("too long")
        return ask(bench, task, example, *rest)

    monkeypatch.setattr(measure, "_ask", refuse)
    records = run(engine, TASKS[:1], Options(("full",), repeats=1), tmp_path / "out")
    assert ["error" in record for record in records] == [True, False]
    assert [place for place, _ in asked] == ["notes/b"] * 2, "one of them is not measured"


def test_a_documents_vectors_and_pages_are_on_no_methods_bill(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    vectors, compile_ = Library.vectors, Engine.compile

    def seen(self: Library, texts: Any) -> Any:
        known = self.bank.vectors(texts, self.embedder.identity)
        made.extend(text for text, vector in zip(texts, known, strict=True) if vector is None)
        return vectors(self, texts)

    def watched(self: Engine, *arguments: Any, **options: Any) -> Any:
        before = len(made)
        report = compile_(self, *arguments, **options)
        if self is engine:
            assert len(made) == before, "embedded before the clock started"
        return report

    monkeypatch.setattr(Library, "vectors", seen)
    monkeypatch.setattr(Engine, "compile", watched)
    run(engine, TASKS[:1], Options(("full:dpi=72", "template", "qv-pic:budget=1"), repeats=1), tmp_path / "out")
    assert made


def test_scores_are_those_of_the_prediction(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    ask = measure._ask

    def say(*arguments: Any) -> Any:
        return replace(ask(*arguments), text="The harbour master, on a Tuesday.")

    monkeypatch.setattr(measure, "_ask", say)
    records = run(engine, [make_task("notes", make_example("a", 1))], Options(("full",), repeats=1), tmp_path / "out")
    # LongBench: harbour master on Tuesday against harbour master; micro: "master," is another token.
    assert records[0]["f1"] == pytest.approx(2 * 2 / (2 * 2 + 2))
    assert records[0]["exact"] == 0.0
    assert records[0]["micro"] == [2, 4, 1]


# Compile costs


def test_each_document_is_compiled_and_noted_once(recorded: Path) -> None:
    costs = lines(recorded / "out" / COSTS)
    shown = {("template", "text"), ("template", "page@72"), ("template", "page@120"), ("bare", "text")}
    names = Counter((cost["document"], cost["write"], cost["shown"]) for cost in costs)
    assert names == {(document.id, *kind): 1 for document in DOCUMENTS for kind in shown}
    assert all(cost["seconds"] > 0 and cost["rows"] > 0 and cost["passages"] > 0 for cost in costs)


def test_what_the_bank_had_is_not_timed(engine: Engine, tmp_path: Path) -> None:
    run(engine, TASKS[1:], FEW, tmp_path / "one")
    run(engine, TASKS, FEW, tmp_path / "two")
    one, two = ({(c["document"], c["shown"]): c for c in lines(tmp_path / name / COSTS)} for name in ("one", "two"))
    assert [cost["seconds"] is None for cost in two.values()] == [name in one for name in two]
    assert all(two[name]["bytes"] == one[name]["bytes"] for name in one)


def test_a_bank_that_lost_its_passages_gets_them_again_at_no_noted_cost(load: Load, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 1:
            raise KeyboardInterrupt

    task = make_task("notes", make_example("a", 0, 1, 2), make_example("b", 1), make_example("c", 2))
    with pytest.raises(KeyboardInterrupt):
        run(Engine(load("glm4v"), page=CARD), [task], FEW, tmp_path / "out", stop)
    before = lines(tmp_path / "out" / COSTS)
    records = run(Engine(load("glm4v"), page=CARD), [task], FEW, tmp_path / "out")
    assert by_name(records, "notes", "c")["qv-pic:budget=1"]["tokens"]["compiled"] == 0
    assert lines(tmp_path / "out" / COSTS) == before


def test_documents_are_forgotten_when_no_further_example_shows_them(engine: Engine, tmp_path: Path) -> None:
    held: list[list[str]] = []

    def look(_: Progress) -> None:
        held.append([info.id for info in engine.bank.documents()])

    task = make_task("notes", make_example("a", 0, 1), make_example("b", 1, 2), make_example("c", 2))
    options = replace(FEW, forget=True)
    records = run(engine, [task], options, tmp_path / "out", look)
    assert held == [[], ["storm"], ["dogs"], []]
    assert (engine.bank.stats().documents, engine.bank.stats().passages) == (0, 0)
    other = Engine(engine.backbone, page=CARD, source="tiny")
    kept = run(other, [task], FEW, tmp_path / "kept")
    assert [record["ids"] for record in records] == [record["ids"] for record in kept]


# What repair needs beside passages

REPAIRING = Options(("full:dpi=72", "prefix-free:dpi=72", "epic:k=1,dpi=72", "qcfuse-view:dpi=72"), repeats=2)
VISUAL = "visual embeddings"


def test_no_request_makes_companions(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, found = measure._ask, Counter[str]()

    def look(bench: Any, task: Task, example: Example, trial: measure.Trial, max_tokens: int) -> Any:
        before = [engine.bank.records_of(document.id) for document in example.documents]
        answer = ask(bench, task, example, trial, max_tokens)
        assert [engine.bank.records_of(document.id) for document in example.documents] == before
        found.update(kind for known in before for kind in known.values())
        return answer

    monkeypatch.setattr(measure, "_ask", look)
    records = run(engine, TASKS[:1], REPAIRING, tmp_path / "out")
    assert not any("error" in record for record in records)
    assert set(found) == {"page@72", f"page@72, {VISUAL}", "page@72, anchors"}


def test_companions_are_a_methods_own_cost(engine: Engine, tmp_path: Path) -> None:
    backwards = replace(REPAIRING, methods=REPAIRING.methods[::-1])  # so that no passage is there before it is needed
    run(engine, TASKS[1:], backwards, tmp_path / "out")
    costs = lines(tmp_path / "out" / COSTS)
    middle = engine.backbone.shape[0] // 2
    group = gather([tmp_path / "out"])[0]
    (anchors,) = {cost["companion"] for cost in costs} - {"", VISUAL}
    assert anchors.startswith("anchors by repeat, digest 0.15, layers " + str(middle))
    names = Counter((cost["document"], cost["companion"]) for cost in costs)
    documents = [document.id for document in TASKS[1].examples[0].documents]
    assert names == {(document, kind): 1 for document in documents for kind in ("", VISUAL, anchors)}
    needed = {"prefix-free:dpi=72": [""], "epic:k=1,dpi=72": ["", VISUAL], "qcfuse-view:dpi=72": ["", VISUAL, anchors]}
    for document in documents:
        for method, kinds in needed.items():
            own = [cost for cost in costs if cost["document"] == document and cost["companion"] in kinds]
            assert group.document_bytes(document, method) == sum(cost["bytes"] for cost in own)
            assert group.compile_seconds(document, method) == pytest.approx(sum(cost["seconds"] for cost in own))
        records = engine.bank.records_of(document)
        whole = sum(engine.bank.store.size(key) or 0 for key in records)
        assert group.document_bytes(document, "qcfuse-view:dpi=72") == whole


def test_companions_that_the_bank_had_have_no_cost(engine: Engine, tmp_path: Path) -> None:
    run(engine, TASKS[1:], REPAIRING, tmp_path / "one")
    run(engine, TASKS[1:], REPAIRING, tmp_path / "two")
    for cost in lines(tmp_path / "two" / COSTS):
        assert (cost["seconds"], cost["bytes"] is None) == (None, cost["companion"] != "")
    (again,) = gather([tmp_path / "two"])
    assert {row.method: row.document_bytes is None for row in rows(again, ["raw"])} == {
        "full:dpi=72": True,
        "prefix-free:dpi=72": False,
        "epic:k=1,dpi=72": True,
        "qcfuse-view:dpi=72": True,
    }


def test_another_profile_is_another_run(engine: Engine, tmp_path: Path) -> None:
    run(engine, TASKS[1:], REPAIRING, tmp_path / "out")
    last = engine.backbone.shape[0] - 1
    engine.bank.set_setting(engine.library.profile_name, {"ranking": [last, 0, 1]})
    with pytest.raises(BenchError, match=r"\(other methods\)"):
        run(engine, TASKS[1:], REPAIRING, tmp_path / "out")


def test_companions_are_cold_and_warm_with_their_passages(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, seen, store = measure._ask, Counter[str](), engine.bank.store
    assert isinstance(store, DirectoryStore)

    def look(bench: Any, task: Task, example: Example, trial: measure.Trial, max_tokens: int) -> Any:
        known = [engine.bank.records_of(document.id) for document in example.documents]
        kinds = {key: kind for records in known for key, kind in records.items() if trial.method.name == "qcfuse-view"}
        if trial.cold is not None and trial.cold.reached and trial.answer is None:
            assert not any(pages_in_memory(store.file(key)) for key in kinds)
            seen.update(f"cold {kind}" for kind in kinds.values())
        elif trial.answer is not None:
            assert all(engine.bank.passages.hot.has(key) for key in kinds)
            seen.update(f"warm {kind}" for kind in kinds.values())
        return ask(bench, task, example, trial, max_tokens)

    monkeypatch.setattr(measure, "_ask", look)
    records = run(engine, TASKS[1:], REPAIRING, tmp_path / "out")
    reached = {f"cold page@72{kind}" for kind in ("", f", {VISUAL}", ", anchors")}
    assert set(seen) >= {kind.replace("cold", "warm") for kind in reached}
    assert (set(seen) >= reached) == any(record.get("cold") == DROPPED for record in records)


# Cold and warm


def test_cold_is_measured_in_a_folder_where_files_can_be_dropped(recorded: Path) -> None:
    for record in read_run(recorded / "out").records:
        if record["method"].startswith("full"):
            assert (record["cold"], record["ttft"]["cold"], record["warm"]) == (None, None, "")
        else:
            assert (record["ttft"]["cold"] is not None) == (record["cold"] == DROPPED)
            assert record["cold"] in (DROPPED, STILL_THERE, NO_CALL)
            assert record["warm"] == "the bank's hot tier"


def test_a_bank_in_memory_is_never_cold(load: Load, tmp_path: Path) -> None:
    for record in run(Engine(load("glm4v"), page=CARD), TASKS, Options(("template",)), tmp_path / "out"):
        assert (record["ttft"]["cold"], record["steps"]["cold"]) == (None, None)
        assert (record["cold"], record["warm"]) == (IN_MEMORY, "a bank in memory")
        assert len(record["ttft"]["warm"]) == 3


def stored(engine: Engine) -> list[str]:
    engine.compile(DOCUMENTS, "template")
    return list(engine.bank.store.keys())


def test_chilled_records_are_in_no_memory(engine: Engine) -> None:
    keys = stored(engine)
    assert heat(engine.bank, keys) == "the bank's hot tier"
    store = engine.bank.store
    assert isinstance(store, DirectoryStore)
    cold = chill(engine.bank, keys)
    assert engine.bank.passages.hot.bytes == 0
    held = sum(pages_in_memory(store.file(key)) for key in keys)
    assert cold.reached == (held == 0)
    assert cold.how == (DROPPED if cold.reached else STILL_THERE)


def test_what_stays_in_the_page_cache_is_not_called_cold(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = stored(engine)
    heat(engine.bank, keys)
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    assert chill(engine.bank, keys) == chill(engine.bank, keys[:1])
    assert chill(engine.bank, keys).how == STILL_THERE
    monkeypatch.delattr(os, "posix_fadvise")
    assert chill(engine.bank, keys).how == NO_CALL


def test_passages_too_many_for_the_hot_tier_are_warm_in_the_page_cache(load: Load, tmp_path: Path) -> None:
    with Bank.open(tmp_path / "small", hot_bytes=1) as bank:
        engine = Engine(load("glm4v"), bank, page=CARD)
        assert heat(bank, stored(engine)) == "the page cache"


# Interruption


def test_an_interrupted_run_goes_on(engine: Engine, tmp_path: Path, asked: Asked) -> None:
    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(engine, TASKS, FEW, tmp_path / "out", stop)
    before = (tmp_path / "out" / RECORDS).read_bytes()
    assert len(before.splitlines()) == 2 * len(FEW.methods)
    asked.clear()
    told: list[Progress] = []
    records = run(engine, TASKS, FEW, tmp_path / "out", told.append)
    assert {place for place, _ in asked} == {"raw/a"}
    assert (tmp_path / "out" / RECORDS).read_bytes().startswith(before)
    assert Counter((r["task"], r["example"], r["method"]) for r in records) == {
        (*place, method): 1 for place in (("notes", "a"), ("notes", "b"), ("raw", "a")) for method in FEW.methods
    }
    assert [(progress.done, progress.total) for progress in told] == [(2, 3), (3, 3)]
    asked.clear()
    assert run(engine, TASKS, FEW, tmp_path / "out") == records
    assert asked == []


def test_of_an_interrupted_example_nothing_is_kept_and_nothing_is_lost(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    ask, count = measure._ask, iter(range(1000))

    def stop(*arguments: Any) -> Any:
        if next(count) == 8:  # within the second example
            raise KeyboardInterrupt
        return ask(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(measure, "_ask", stop)
        with pytest.raises(KeyboardInterrupt):
            run(engine, TASKS, FEW, tmp_path / "out")
    assert len(read_run(tmp_path / "out").records) == len(FEW.methods)
    assert len(run(engine, TASKS, FEW, tmp_path / "out")) == 3 * len(FEW.methods)


@pytest.mark.parametrize("cut", [1, 30, 1500], ids=["line break", "line", "lines"])
def test_a_torn_end_is_dropped_and_asked_again(engine: Engine, tmp_path: Path, asked: Asked, cut: int) -> None:
    records = run(engine, TASKS, FEW, tmp_path / "out")
    file = tmp_path / "out" / RECORDS
    whole = file.read_bytes()
    last = sum(len(line) for line in whole.splitlines(keepends=True)[-len(FEW.methods) :])
    assert cut < last
    file.write_bytes(whole[:-cut])
    asked.clear()
    again = run(engine, TASKS, FEW, tmp_path / "out")
    assert {place for place, _ in asked} == {"raw/a"}
    assert [record["ids"] for record in again] == [record["ids"] for record in records]
    assert again[: -len(FEW.methods)] == records[: -len(FEW.methods)]
    assert lines(file) == again


def test_a_line_damaged_elsewhere_is_named(engine: Engine, tmp_path: Path) -> None:
    run(engine, TASKS, FEW, tmp_path / "out")
    file = tmp_path / "out" / RECORDS
    kept = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*kept[:3], b'{"task": \n', *kept[4:]]))
    with pytest.raises(BenchError, match=r"run\.jsonl, line 4 is damaged: delete that line"):
        run(engine, TASKS, FEW, tmp_path / "out")
    file.write_bytes(b"".join([*kept[:3], *kept[4:]]))
    assert len(run(engine, TASKS, FEW, tmp_path / "out")) == 3 * len(FEW.methods)


# Refusals and failures


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 4}, r"\(other seed: 0 there, 4 here\)"),
        ({"repeats": 3, "n": 1}, r"\(other n: null there, 1 here, repeats: 2 there, 3 here\)"),
        ({"methods": ("full",)}, r"\(other methods\)"),
    ],
)
def test_another_configuration_is_refused(engine: Engine, tmp_path: Path, change: dict[str, Any], named: str) -> None:
    run(engine, TASKS[1:], FEW, tmp_path / "out")
    before = (tmp_path / "out" / RECORDS).read_bytes()
    with pytest.raises(BenchError, match=named):
        run(engine, TASKS[1:], Options(**{"methods": FEW.methods, "repeats": 2, **change}), tmp_path / "out")
    assert (tmp_path / "out" / RECORDS).read_bytes() == before


def test_another_model_or_other_examples_are_refused(engine: Engine, load: Load, tmp_path: Path) -> None:
    run(engine, TASKS[1:], FEW, tmp_path / "out")
    with pytest.raises(BenchError, match=r"other facts.*, bank: .*tasks"):
        run(Engine(load("qwen2_vl"), page=CARD, source="tiny"), TASKS, FEW, tmp_path / "out")
    changed = make_task("raw", make_example("a", 1, 2), chat=False)
    with pytest.raises(BenchError, match=r"\(other tasks\)"):
        run(engine, [changed], FEW, tmp_path / "out")


def test_a_method_that_fails_on_an_example_is_recorded(engine: Engine, tmp_path: Path) -> None:
    long = Document("long", "The storm arrived on a Sunday. " * 200)
    examples = [Example("a", (long,), "Who?", TEXT, PAGES, ("x",)), make_example("b", 1)]
    methods = ("full", "template", "template:dpi=72")
    records = run(engine, [make_task("notes", *examples)], Options(methods, repeats=1), tmp_path / "out")
    failed = by_name(records, "notes", "a")
    assert {method for method, record in failed.items() if "error" in record} >= {"full", "template"}
    assert failed["template"]["error"].startswith("PromptTooLongError: document long takes ")
    assert "f1" not in failed["full"]
    assert not any("error" in record for record in by_name(records, "notes", "b").values())
    assert len(records) == 6


def test_a_full_disk_ends_the_run(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise BankError("cannot write (No space left on device)")

    monkeypatch.setattr(engine.bank.store, "put", refuse)
    with pytest.raises(BankError, match="No space"):
        run(engine, TASKS, FEW, tmp_path / "out")
    assert read_run(tmp_path / "out").records == []


def test_examples_that_could_not_be_told_apart_are_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="same task and id"):
        run(engine, [TASKS[0], TASKS[0]], FEW, tmp_path / "out")
    with pytest.raises(BenchError, match="no example to ask"):
        run(engine, [], FEW, tmp_path / "out")
    with pytest.raises(BenchError, match="give at least one of each"):
        Options(())


def test_a_folder_of_other_things_is_refused(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_text("{}\n")
    with pytest.raises(BenchError, match=r"holds records without their run\.json"):
        run(engine, TASKS, FEW, tmp_path)
    with pytest.raises(BenchError, match="holds no run"):
        read_run(tmp_path / "nowhere")
