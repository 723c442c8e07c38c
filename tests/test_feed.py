"""The pipeline between bank and reader, and the cost model that says when not to use it."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from conftest import Load
from conversations import CARD, DOCUMENTS, QUESTION, SIMPLE, library, reuse_request, spelled
from kvbind import Bank, Engine, Sampling
from kvbind.bank.recordfile import RecordFile
from kvbind.errors import BankError, DamagedRecordError
from kvbind.steps import feed as feed_step
from kvbind.steps.cost import AGAIN, KNOWN, MARGIN, SMALL, Speeds, cost_name, decide
from kvbind.steps.cost import Request as CostRequest
from kvbind.steps.feed import Feed, Placement
from kvbind.steps.read import read_fresh
from kvbind.types import StackedKV

IDS = [document.id for document in DOCUMENTS]
NONE = Sampling(max_tokens=0)
pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.fixture
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@dataclass
class SlowKV:
    """Keys and values that take their time, and note which layers were read."""

    kv: StackedKV
    seconds: float = 0.0
    read: list[int] = field(default_factory=list)
    fail_at: int = -1

    @property
    def layers(self) -> int:
        return self.kv.layers

    def k(self, layer: int) -> Tensor:
        return self.kv.k(layer)

    def v(self, layer: int) -> Tensor:
        return self.kv.v(layer)

    def span(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        time.sleep(self.seconds)
        if first == self.fail_at:
            raise DamagedRecordError("abc", "its file is too short")
        self.read.append(first)
        return self.kv.span(first, last)


def fed(load: Load, name: str = "llama", **how: object) -> tuple[Tensor, Tensor, Feed, list[SlowKV]]:
    """Logits of a request whose passages are in memory, and of one whose passages come through a feed."""
    lib = library(load(name))
    whole = reuse_request(lib, SIMPLE, spelled("template", 0))
    assert whole.context is not None
    expected = read_fresh(lib.backbone, whole.context, whole.layout)
    context = lib.backbone.context(whole.layout.rows)
    context.extend(whole.layout.rows)
    for keys, values, others in zip(
        context.keys, context.values, zip(whole.context.keys, whole.context.values, strict=True), strict=True
    ):
        keys.fill_(9e9)
        values.fill_(9e9)
        head = whole.layout.segments[0].rows
        keys[:, :, head], values[:, :, head] = others[0][:, :, head], others[1][:, :, head]
    slow = [SlowKV(passage.kv, **how) for passage in whole.passages]  # type: ignore[arg-type]
    placed = [
        Placement(segment, kv, segment.anchor - passage.origin)
        for segment, kv, passage in zip(whole.layout.chunks, slow, whole.passages, strict=True)
    ]
    with Feed(lib.backbone, context, placed, ahead=1, group_bytes=1) as feed:
        got = read_fresh(lib.backbone, context, whole.layout, source=feed)
    return expected, got, feed, slow


def test_a_fed_request_equals_a_stitched_one(load: Load) -> None:
    expected, got, feed, slow = fed(load)
    assert torch.equal(got, expected)
    assert slow[0].read == list(range(slow[0].layers)), "one layer after the other, each once"
    assert feed.loading.bytes == sum(kv.kv.keys.nbytes + kv.kv.values.nbytes for kv in slow)


def test_the_reader_waits_for_a_slow_store(load: Load) -> None:
    _, _, feed, _ = fed(load, seconds=0.02)
    assert feed.loading.waited > 0.02
    assert feed.loading.seconds > 0.02 * 3


def test_what_fails_in_the_thread_is_raised_where_it_is_needed(load: Load) -> None:
    with pytest.raises(DamagedRecordError):
        fed(load, fail_at=1)


def test_a_feed_reads_no_further_than_agreed_and_stops_when_left(load: Load) -> None:
    lib = library(load("llama"))
    request = reuse_request(lib, SIMPLE, spelled("template", 0))
    context = lib.backbone.context(request.layout.rows)
    context.extend(request.layout.rows)
    slow = SlowKV(request.passages[0].kv)  # type: ignore[arg-type]
    many = StackedKV(*(t.repeat(8, 1, 1, 1) for t in (slow.kv.keys, slow.kv.values)))
    slow.kv = many
    context.layers = many.layers
    with Feed(lib.backbone, context, [Placement(request.layout.chunks[0], slow, 0)], ahead=2, group_bytes=1) as feed:
        time.sleep(0.2)
        assert len(slow.read) == 3, "two wait for the reader, and one stands at the door"
    assert not feed._thread.is_alive()
    assert len(slow.read) < many.layers


@pytest.mark.parametrize("method", ["template", "cacheblend:0.3", "qcfuse:0.3", "epic:2"])
def test_answers_from_a_folder_are_those_from_memory(load: Load, tmp_path: Path, method: str) -> None:
    backbone = load("qwen2")
    memory = Engine(backbone, page=CARD, weigh=False)
    memory.compile(DOCUMENTS, method)
    wanted = memory.chat(method=method)
    wanted.ask(QUESTION, IDS, sampling=NONE)
    with Bank.open(tmp_path) as bank:
        Engine(backbone, bank, page=CARD).compile(DOCUMENTS, method)
    for hot in (0, 1 << 20):
        with Bank.open(tmp_path, hot_bytes=hot) as bank:
            engine = Engine(backbone, bank, page=CARD, weigh=False)
            for number in range(2):
                chat = engine.chat(method=method)
                answer = chat.ask(QUESTION, IDS, sampling=NONE)
                assert torch.equal(chat.turn.logits, wanted.turn.logits)  # type: ignore[union-attr]
                fed = method != "template" and (number == 0 or hot == 0)
                assert (answer.loading.bytes > 0) == fed, "hot passages are not read again"
                _until_hot(bank, hot)


def _until_hot(bank: Bank, hot: int) -> None:
    """The feed's thread may still be putting the last passage into the hot tier."""
    deadline = time.monotonic() + 5
    while hot and time.monotonic() < deadline and any(t.name == "kvbind-feed" for t in feed_step.threading.enumerate()):
        time.sleep(0.01)


def test_a_record_damaged_behind_its_header_is_compiled_again(load: Load, tmp_path: Path) -> None:
    backbone = load("qwen2")
    with Bank.open(tmp_path, hot_bytes=0) as bank:
        engine = Engine(backbone, bank, page=CARD)
        engine.compile(DOCUMENTS)
        chat = engine.chat()
        chat.ask(QUESTION, IDS, sampling=NONE)
        wanted = chat.turn.logits  # type: ignore[union-attr]
        file = next(path for path in tmp_path.rglob("*.safetensors") if RecordFile(path, path.stem).meta["layers"])
        body = bytearray(file.read_bytes())
        body[-1] ^= 1
        file.write_bytes(body)
        chat = engine.chat()
        answer = chat.ask(QUESTION, IDS, sampling=NONE)
        assert torch.equal(chat.turn.logits, wanted)  # type: ignore[union-attr]
        states = [source.state for source in answer.sources]
        assert sorted(set(states)) in (["compiled now", "hit"], ["hit"])
        assert bank.damage


def test_only_the_critical_layer_is_read_to_find_out_what_matters(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, method = load("qwen2"), "qcfuse:ratio=0.3,layer=1"
    with Bank.open(tmp_path, hot_bytes=0) as bank:
        engine = Engine(backbone, bank, page=CARD, weigh=False)
        engine.compile(DOCUMENTS, method)

        read: list[tuple[str, int]] = []
        part = RecordFile.part

        def spy(record: RecordFile, name: str, index: int) -> Tensor:
            read.append((name, index))
            return part(record, name, index)

        monkeypatch.setattr(RecordFile, "part", spy)
        engine.ask(QUESTION, IDS, method=method, sampling=NONE)
    assert read == [("k", 1)] * len(IDS)


SLOW, FAST = 1e9, 1e12


@pytest.mark.parametrize(
    ("passes", "store", "repaired", "rows", "reuse"),
    [
        pytest.param(FAST, 1e4, 0.3, 4000, False, id="a slow disk"),
        pytest.param(SLOW, 1e9, 0.3, 4000, True, id="a slow processor"),
        pytest.param(SLOW, 1e9, 1.0, 4000, True, id="repairing everything costs the same, and stays"),
        pytest.param(FAST, 1e4, 0.3, SMALL - 1, True, id="too small to weigh"),
        pytest.param(None, 1e4, 0.3, 4000, True, id="nothing measured yet"),
    ],
)
def test_the_cheaper_way_is_taken(
    load: Load, passes: float | None, store: float, repaired: float, rows: int, reuse: bool
) -> None:
    speeds = Speeds(load("llama"))
    for _ in range(KNOWN):
        if passes is not None:
            speeds.saw_pass(1024, 2048, speeds._operations(1024, 2048) / passes)
        speeds.store.add(store)
        speeds.saw_reuse("epic", {"fetch": 0.0}, 1000, 1000 * repaired)
    request = CostRequest(0, rows, 20, rows - 20, 1_000_000)
    decision = decide(speeds, "epic", request)
    assert decision.reuse is reuse
    assert decision.reason.startswith("reuse" if reuse else "computed everything")
    again = Speeds.read(speeds.backbone, speeds.plain())
    assert decide(again, "epic", request) == decision


def test_expected_seconds_add_up(load: Load) -> None:
    speeds = Speeds(load("llama"))
    for _ in range(KNOWN):
        speeds.saw_pass(1000, 1000, 2.0)
    assert speeds.pass_seconds(1000, 1000) == pytest.approx(2.0)
    assert speeds.pass_seconds(500, 1000) == pytest.approx(1.0)
    assert 0 < MARGIN < 1


def test_a_slow_store_makes_the_engine_compute_everything_and_say_so(load: Load) -> None:
    engine = Engine(load("qwen2"))
    engine.compile(DOCUMENTS, "epic:1")
    speeds = engine.library.speeds
    for _ in range(KNOWN):
        speeds.saw_pass(128, 256, speeds._operations(128, 256) / FAST)
        speeds.saw_reuse(cost_name(engine.method("epic:1")), {"fetch": 50.0}, 100, 10)
    documents = IDS * 3
    answer = engine.ask(QUESTION, documents, method="epic:1", sampling=NONE)
    assert answer.decision.startswith("computed everything: expected")
    assert {source.state for source in answer.sources} == {"fresh"}
    full = engine.ask(QUESTION, documents, method="full", sampling=Sampling(max_tokens=3))
    assert engine.ask(QUESTION, documents, method="epic:1", sampling=Sampling(max_tokens=3)).text == full.text
    engine.weigh = False
    assert engine.ask(QUESTION, documents, method="epic:1", sampling=NONE).tokens["reused"] > 0


def test_reuse_that_was_refused_is_tried_again(load: Load) -> None:
    speeds = Speeds(load("llama"))
    for _ in range(KNOWN):
        speeds.saw_pass(1024, 2048, speeds._operations(1024, 2048) / FAST)
        speeds.saw_reuse("epic", {"fetch": 50.0}, 1000, 10)
    request = CostRequest(0, 4000, 20, 3980, 0)
    assert [decide(speeds, "epic", request).reuse for _ in range(2 * AGAIN)] == [*[False] * (AGAIN - 1), True] * 2


def test_what_one_method_costs_says_nothing_of_another(load: Load) -> None:
    engine = Engine(load("glm4v"))
    spelled = ("cacheblend:0.1", "cacheblend:0.9", "qcfuse", "qcfuse:digest=0.5", "qcfuse:template=on", "qcfuse:dpi=72")
    names = [cost_name(engine.method(method)) for method in spelled]
    assert len(set(names)) == len(spelled)
    assert cost_name(engine.method("cacheblend:0.9")) == names[1]


def test_requests_that_made_something_teach_nothing(load: Load) -> None:
    engine = Engine(load("qwen2"))
    for document in DOCUMENTS:
        engine.add(document)
    counts = []
    for _ in range(3):
        engine.ask(QUESTION, IDS, method="qcfuse", sampling=NONE)
        counts.append(sum(mean.count for mean in engine.library.speeds.repaired.values()))
    assert counts == [0, 1, 2], "the first compiled its passages"
    engine.compile(DOCUMENTS, "prefix-free")
    engine.ask(QUESTION, IDS, method="qcfuse-view", sampling=NONE)
    assert len(engine.library.speeds.repaired) == 1, "it made its anchors"


@pytest.mark.parametrize("kept", [None, 3, [], {"passes": 1}, {"passes": {"x": [1, 2]}}])
def test_a_note_of_speeds_that_makes_no_sense_is_none(load: Load, kept: object) -> None:
    assert Speeds.read(load("llama"), kept).plain() == Speeds(load("llama")).plain()


def test_a_locked_bank_does_not_fail_a_request(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(load("qwen2"))
    engine.compile(DOCUMENTS, "epic:1")

    def refuse(*_: object) -> None:
        raise BankError("locked")

    monkeypatch.setattr(Bank, "set_setting", refuse)
    assert engine.ask(QUESTION, IDS, method="epic:1", sampling=NONE).tokens["recomputed"] == len(IDS)


def test_computing_everything_instead_is_timed_once(load: Load) -> None:
    engine = Engine(load("qwen2"))
    engine.compile(DOCUMENTS, "epic:1")
    for _ in range(KNOWN):
        engine.library.speeds.saw_pass(128, 256, 1e-6)
        engine.library.speeds.saw_reuse(cost_name(engine.method("epic:1")), {"fetch": 50.0}, 100, 10)
    start = time.perf_counter()
    answer = engine.ask(QUESTION, IDS * 3, method="epic:1", sampling=NONE)
    assert answer.decision.startswith("computed everything")
    assert answer.ttft + answer.seconds["prepare"] <= time.perf_counter() - start


@pytest.mark.parametrize("method", ["qcfuse", "qcfuse-view", "epic:1", "template"])
def test_a_damaged_payload_is_compiled_again_by_every_method(load: Load, tmp_path: Path, method: str) -> None:
    backbone = load("qwen2")
    with Bank.open(tmp_path, hot_bytes=0) as bank:
        engine = Engine(backbone, bank, weigh=False)
        engine.compile(DOCUMENTS, "template" if method == "template" else "prefix-free")
        chat = engine.chat(method=method)
        for file in tmp_path.rglob("*.safetensors"):
            if "k" in RecordFile(file, file.stem).names() and RecordFile(file, file.stem).meta["rows"] != "0":
                body = bytearray(file.read_bytes())
                body[-1] ^= 1
                file.write_bytes(body)
                break
        chat.ask(QUESTION, IDS, sampling=NONE)
        clean = Engine(backbone, weigh=False)
        clean.compile(DOCUMENTS, method)
        other = clean.chat(method=method)
        other.ask(QUESTION, IDS, sampling=NONE)
        torch.testing.assert_close(chat.turn.logits, other.turn.logits, rtol=1e-4, atol=2e-4)  # type: ignore[union-attr]
        engine.compile(DOCUMENTS, method)


def test_a_cleared_hot_tier_takes_nothing_that_began_before(load: Load, tmp_path: Path) -> None:
    with Bank.open(tmp_path) as bank:
        engine = Engine(load("qwen2"), bank)
        engine.compile(DOCUMENTS)
        passage = bank.get(next(iter(bank.catalogue.linked())))
        assert passage is not None
        epoch = bank.hot_epoch
        bank.passages.hot.clear()
        bank.warm(passage, epoch)
        assert bank.passages.hot.bytes == 0
        bank.warm(passage, bank.hot_epoch)
        assert bank.passages.hot.bytes > 0


def test_a_feed_that_failed_says_so_again(load: Load) -> None:
    lib = library(load("llama"))
    request = reuse_request(lib, SIMPLE, spelled("template", 0))
    context = lib.backbone.context(request.layout.rows)
    context.extend(request.layout.rows)
    slow = SlowKV(request.passages[0].kv, fail_at=0)  # type: ignore[arg-type]
    with Feed(lib.backbone, context, [Placement(request.layout.chunks[0], slow, 0)]) as feed:
        for _ in range(2):
            with pytest.raises(DamagedRecordError):
                feed.place(0)
