"""benchmarks/peers: the same requests for every system, and their answers as one run."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from conftest import Load
from kvbind import Bank, Engine, Sampling
from kvbind.bench.groups import gather
from kvbind.bench.records import read_run
from kvbind.bench.run import Options, run
from kvbind.bench.tasks import TaskOptions, load_task

FOLDER = Path(__file__).parents[1] / "benchmarks" / "peers"
NAMES = ("common", "prefix", "compare")


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield {name: __import__(name) for name in NAMES}
        for name in NAMES:
            sys.modules.pop(name)


@pytest.fixture
def tasks(load: Load, scripts: dict[str, ModuleType]) -> Any:
    backbone = load("llama")
    options = TaskOptions(data=None, n=2, encode=backbone.tokens, decode=backbone.tokenizer.decode)
    return scripts["compare"].in_two_orders(load_task("biographies:notes=3", options))


@pytest.fixture
def system(models: Callable[[str], Path], scripts: dict[str, ModuleType]) -> Any:
    given = SimpleNamespace(model=models("llama"), dtype="float32", device="cpu")
    return scripts["prefix"].Prefix(given)


def test_documents_come_in_two_orders(tasks: Any) -> None:
    same, other = tasks
    assert other.name == "biographies:notes=3, another order"
    for one, moved in zip(same.examples, other.examples, strict=True):
        assert one.documents != moved.documents
        assert sorted(document.id for document in one.documents) == sorted(document.id for document in moved.documents)
        assert [one.documents[place] for place in one.gold] == [moved.documents[place] for place in moved.gold]


def test_all_systems_answers_become_one_run(
    load: Load, tasks: Any, system: Any, scripts: dict[str, ModuleType], tmp_path: Path
) -> None:
    compare, engine = scripts["compare"], Engine(load("llama"), source="tiny")
    with Bank.open(tmp_path / "bank") as bank:
        run(
            Engine(engine.backbone, bank, source="tiny"),
            tasks,
            Options(("full", "template"), repeats=1),
            tmp_path / "own",
        )
    asked = json.loads(json.dumps(list(compare.requests(engine, tasks))))
    said = [record for request in asked for record in scripts["common"].answers(system, request, 2, warm_up=False)]
    peer = compare.Peer("prefix.py", sys.executable, compare.HF)
    compare.merge(engine, tasks, tmp_path / "out", tmp_path / "own", {peer: said})

    records = read_run(tmp_path / "out").records
    assert len(records) == 2 * 2 * 4
    found = {(one["task"], one["example"], one["method"]): one for one in records}
    for task, example, method in found:
        mine = found[task, example, method]
        if method != "template":
            assert mine["ids"] == found[task, example, "full"]["ids"]
            assert mine["f1"] == found[task, example, "full"]["f1"]
        if method.startswith("hf"):
            assert len(mine["ttft"]["warm"]) == 2
    (group,) = gather([tmp_path / "out"])
    assert group.reference("hf-prefix", "full") == "full"

    same, other = ([one for one in records if (one["task"], one["method"]) == (t.name, "hf-prefix")] for t in tasks)
    for one, moved in zip(same, other, strict=True):
        assert one["tokens"]["fresh"] < one["tokens"]["reused"] / 4, "all but the question"
        assert moved["tokens"]["reused"] < one["tokens"]["reused"]
    console = compare.summary(records, {peer: said})
    assert console.row_count == 2 * 4


def test_requests_are_laid_out_as_kvbind_asks_them(load: Load, tasks: Any, scripts: dict[str, ModuleType]) -> None:
    engine = Engine(load("llama"))
    request = next(scripts["compare"].requests(engine, tasks))
    example = tasks[0].examples[0]
    chat = engine.chat(method="full")
    chat.ask(example.query, [document.id for document in example.documents], sampling=Sampling(max_tokens=1))
    assert chat.turn is not None
    assert request["ask"]["ids"] == chat.turn.layout.ids.tolist()
    before = request["ask"]["before_question"]
    assert request["primer"]["ids"][:before] == request["ask"]["ids"][:before]
    assert request["primer"]["ids"] != request["ask"]["ids"]
    assert example.query in request["ask"]["text"]


def test_a_short_common_prefix_is_not_used(system: Any, scripts: dict[str, ModuleType]) -> None:
    make = scripts["common"].Ask
    long, short = list(range(10, 60)), [10, 11, *range(60, 100)]
    system.prime(make(long, "", 0, []))
    for ids, shared in ((long, 49), (short, 0), ([*long[:40], 7, 8], 40)):
        answer, whole = (system.answer(method, make(ids, "", 0, []), 3) for method in ("hf-prefix", "hf-full"))
        assert (answer.reused, answer.prompt) == (shared, len(ids))
        assert answer.ids == whole.ids
    assert scripts["common"].until_stop([5, 6, 7, 6], [6, 7]) == [5]
