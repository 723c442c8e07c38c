"""Repair: reused rows computed anew, by EPIC, CacheBlend and QCFuse, over every family."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from conftest import Load
from conversations import (
    CARD,
    DOCUMENTS,
    QUESTION,
    SCATTERED,
    SHOWN,
    SIMPLE,
    full_request,
    isolated_mask,
    library,
    native_logits,
    spelled,
)
from kvbind import Bank, Doc, Document, Engine, Message, Sampling
from kvbind.chat import Chat
from kvbind.errors import MethodError
from kvbind.methods import Method, Selector, Write, selectors
from kvbind.methods.selectors import Repairable
from kvbind.models import Backbone
from kvbind.steps import companions
from kvbind.steps import repair as repair_step
from kvbind.steps.layout import Layout
from kvbind.steps.plan import Choice, choose
from kvbind.types import Text
from tiny import TEXT, VISION

pytestmark = pytest.mark.usefixtures("no_grad")
shown = pytest.mark.parametrize(("name", "dpi"), SHOWN)
CLOSE = {"rtol": 1e-4, "atol": 2e-4}
REPAIRING = ("epic:k=2", "cacheblend", "cacheblend:gradual=on", "qcfuse", "qcfuse-view", "qcfuse:template=on")
NONE = Sampling(max_tokens=0)


@pytest.fixture
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def asked(backbone: Backbone, messages: Sequence[Message], method: Method, bank: Bank | None = None) -> Chat:
    """One turn, read but not answered."""
    engine = Engine(backbone, bank, page=CARD)
    for document in DOCUMENTS:
        engine.add(document)
    chat = engine.chat(method=method)
    chat.ask(messages, sampling=NONE)
    return chat


def logits(backbone: Backbone, messages: Sequence[Message], method: Method) -> Tensor:
    turn = asked(backbone, messages, method).turn
    assert turn is not None
    return turn.logits


@shown
@pytest.mark.parametrize("spelling", ["cacheblend:1", "cacheblend:1,gradual=on", "qcfuse:1", "qcfuse-view:1"])
@pytest.mark.parametrize("messages", [SIMPLE, SCATTERED], ids=["simple", "scattered"])
def test_at_ratio_one_every_method_equals_full_prefill(
    load: Load, name: str, dpi: int, spelling: str, messages: list[Message]
) -> None:
    backbone = load(name)
    repaired = logits(backbone, messages, spelled(spelling, dpi))
    torch.testing.assert_close(repaired, native_logits(full_request(library(backbone), messages, dpi))[-1], **CLOSE)


@shown
@pytest.mark.parametrize("spelling", ["cacheblend:0", "qcfuse:0", "epic:0"])
def test_at_ratio_zero_every_method_equals_plain_stitching(load: Load, name: str, dpi: int, spelling: str) -> None:
    backbone = load(name)
    stitched = logits(backbone, SCATTERED, spelled("prefix-free", dpi))
    torch.testing.assert_close(logits(backbone, SCATTERED, spelled(spelling, dpi)), stitched, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("messages", [SIMPLE, SCATTERED], ids=["simple", "scattered"])
def test_repaired_rows_equal_a_forward_with_each_of_them_twice(load: Load, name: str, messages: list[Message]) -> None:
    """An independent reference: one native forward over the request and, once more, the rows computed anew.

    Document rows of the first copy see only their own document. Rows of the second copy, and fresh rows, see what
    stands before them in the request, each repaired row as its second copy.
    """
    backbone = load(name)
    picked = _third_of_the_rows(messages, backbone)
    method = Method("picked", Write("bare"), (Text(),), selector=Selector(lambda passages, scores: picked))
    everything = full_request(library(backbone), messages, 0)
    again = everything.layout
    expected = _native_with_copies(backbone, again, picked)
    repaired = logits(backbone, messages, method)
    torch.testing.assert_close(repaired, expected, **CLOSE)
    for other in (native_logits(everything)[-1], native_logits(everything, isolated_mask(again))[-1]):
        assert (repaired - other).abs().max() > 0.05, "repairing changed nothing: nothing was tested"


def _third_of_the_rows(messages: Sequence[Message], backbone: Backbone) -> Tensor:
    chunks = full_request(library(backbone), messages, 0).layout.chunks
    rows = torch.cat([torch.arange(segment.rows.start, segment.rows.stop) for segment in chunks])
    return rows.sort().values[::3]


def _native_with_copies(backbone: Backbone, layout: Layout, picked: Tensor) -> Tensor:
    document = torch.full((layout.rows,), -1)
    for number, segment in enumerate(layout.chunks):
        document[segment.rows] = number
    copies = layout.rows + torch.arange(len(picked))
    order = torch.cat([torch.arange(layout.rows), picked])  # the row of the request that each row stands for
    first = torch.arange(len(order)) < layout.rows
    reused = first & (document[order] >= 0)
    stale = torch.zeros(len(order), dtype=torch.bool)
    stale[picked] = True
    before = order[None, :] <= order[:, None]
    own = first & (document[order][None, :] == document[order][:, None])
    mask = before & torch.where(reused[:, None], own, ~stale[None, :])
    assert bool(mask[copies, copies].all())
    lowest = torch.finfo(backbone.dtype).min
    output = backbone.model(
        input_ids=layout.ids[order][None],
        position_ids=layout.positions[:, order],
        attention_mask=torch.zeros(mask.shape).masked_fill(~mask, lowest)[None, None],
        use_cache=False,
    )
    return output.logits[0, layout.rows - 1]


@shown
def test_cacheblend_keeps_the_rows_whose_values_differ_most(
    load: Load, name: str, dpi: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a whole layer 0, values at layer 1 are those of full prefill: deviations can be told from outside."""
    backbone, seen = load(name), []
    deviation = selectors.value_deviation

    def spy(computed: Tensor, stored: Tensor) -> Tensor:
        seen.append((computed, stored))
        return deviation(computed, stored)

    monkeypatch.setattr("kvbind.steps.read.value_deviation", spy)
    chat = asked(backbone, SIMPLE, spelled("cacheblend:ratio=0.25", dpi))
    exact = asked(backbone, SIMPLE, spelled("full", dpi)).context
    plain = asked(backbone, SIMPLE, spelled("prefix-free", dpi)).context
    assert chat.turn is not None
    assert chat.context is not None
    assert exact is not None
    assert plain is not None
    rows = torch.cat([torch.arange(segment.rows.start, segment.rows.stop) for segment in chat.turn.layout.chunks])
    (computed, stored), count = seen[0], selectors.share_of(len(rows), 0.25)
    torch.testing.assert_close(computed, exact.values[1][:, :, rows], **CLOSE)
    torch.testing.assert_close(stored, plain.values[1][:, :, rows])
    changed = (chat.context.values[1][0, :, rows] != plain.values[1][0, :, rows]).any(-1).any(0)
    assert int(changed.sum()) == count
    assert changed.nonzero()[:, 0].tolist() == selectors.largest(deviation(computed, stored), count).tolist()
    layers = backbone.shape[0]
    assert chat.turn.repaired == pytest.approx((len(rows) + count * (layers - 1)) / layers)


@pytest.mark.parametrize("name", ["llama", "glm4v"])
def test_the_question_picks_what_it_looks_at(load: Load, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every row an anchor, the probe is a reading of the whole stitched request: attention is as read there."""
    backbone, found = load(name), []
    importance = repair_step.importance

    def spy(*arguments: object) -> Tensor:
        found.append(importance(*arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(repair_step, "importance", spy)
    layer = 1
    chat = asked(backbone, SIMPLE, spelled(f"qcfuse:ratio=0.3,layer={layer},digest=1", 0))
    assert chat.turn is not None
    stitched = full_request(library(backbone), SIMPLE, 0)
    expected = _question_attention(backbone, stitched.layout, layer)
    rows = torch.cat([torch.arange(segment.rows.start, segment.rows.stop) for segment in chat.turn.layout.chunks])
    torch.testing.assert_close(found[0][rows], expected[rows] / expected[rows].sum(), rtol=2e-2, atol=1e-4)
    assert found[0].sum() == pytest.approx(1, abs=1e-4)


def _question_attention(backbone: Backbone, layout: Layout, layer: int) -> Tensor:
    """Attention (T,) of the question's rows, of each row's own documents' part, by transformers' eager attention."""
    mask = isolated_mask(layout)
    lowest = torch.finfo(backbone.dtype).min
    positions = layout.positions[:, None] if backbone.family.axes > 1 else layout.positions
    config = backbone.stack.config
    before = config._attn_implementation
    config._attn_implementation = "eager"
    try:
        output = backbone.model(
            input_ids=layout.ids[None],
            position_ids=positions,
            attention_mask=torch.zeros(mask.shape).masked_fill(~mask, lowest)[None, None],
            output_attentions=True,
            use_cache=False,
        )
    finally:
        config._attn_implementation = before
    rows = torch.cat([torch.arange(segment.rows.start, segment.rows.stop) for segment in layout.chunks])
    attention = output.attentions[layer][0][:, layout.segments[-1].rows]  # (Hq, R, T)
    only = torch.zeros(layout.rows)
    only[rows] = 1.0
    shares = attention * only
    return (shares / shares.sum(-1, keepdim=True)).mean(dim=(0, 1))


@pytest.mark.parametrize("anchors", ["norm", "repeat"])
@pytest.mark.parametrize(("name", "dpi"), [("qwen3", 0), ("glm4v", 72)])
def test_anchors_are_a_part_of_their_passage(load: Load, name: str, dpi: int, anchors: str) -> None:
    spelling = "qcfuse" if anchors == "norm" else "qcfuse-view:layers=1"
    engine = Engine(load(name), page=CARD)
    method = engine.method(spelled(spelling, dpi))
    engine.compile(DOCUMENTS[:1], method)
    choice = choice_of(engine, method)
    assert method.selector is not None
    assert method.write is not None
    probe = method.selector.probe
    assert probe is not None
    whole = engine.bank.get(choice.key)
    assert whole is not None
    (layer,) = companions.critical_layers(engine.library, probe)
    found = companions.anchors(engine.library, choice, whole, method.write, probe, [layer])
    assert found.rows == -(-whole.rows * 15 // 100)
    assert found.kv.layers == layer + 1
    rows = [_row_of(whole.kv.k(0), found.kv.k(0)[:, number]) for number in range(found.rows)]
    assert rows == sorted(set(rows))
    torch.testing.assert_close(found.kv.v(layer), whole.kv.v(layer)[:, rows])
    if anchors == "norm":
        norms = whole.kv.k(layer).norm(dim=-1).mean(dim=0)
        assert norms[rows].min() >= norms[[row for row in range(whole.rows) if row not in rows]].max()
    else:
        assert set(range(companions.ALWAYS)) <= set(rows)


def choice_of(engine: Engine, method: Method) -> Choice:
    chunks = engine.library.chunks(DOCUMENTS[0], method.representations[0])
    return choose(engine.library, method, chunks, [None] * len(chunks))[0]


def _row_of(keys: Tensor, row: Tensor) -> int:
    return int((keys == row[:, None]).all(-1).all(0).nonzero()[0, 0])


@pytest.mark.parametrize("name", ["llama-llama3", "qwen3"])
def test_repeat_scores_are_the_attention_that_transformers_reports(load: Load, name: str) -> None:
    engine = Engine(load(name))
    method = engine.method("qcfuse-view")
    engine.compile(DOCUMENTS[:1], method)
    choice = choice_of(engine, method)
    whole = engine.bank.get(choice.key)
    assert whole is not None
    assert method.write is not None
    scores = companions._repeat_scores(engine.library, choice, whole, method.write)
    backbone = engine.backbone
    told = backbone.tokens(companions.REPEAT) + backbone.tokens(choice.chunk.text)
    config = backbone.stack.config
    before = config._attn_implementation
    config._attn_implementation = "eager"
    try:
        ids = torch.cat([whole.ids, torch.tensor(told)])[None]
        attentions = backbone.model(input_ids=ids, output_attentions=True, use_cache=False).attentions
    finally:
        config._attn_implementation = before
    expected = torch.stack([layer[0][:, whole.rows :, : whole.rows].amax(dim=(0, 1)) for layer in attentions])
    torch.testing.assert_close(scores, expected.mean(dim=0), rtol=1e-4, atol=1e-5)


def test_a_passage_right_after_its_head_is_left_as_it_is(load: Load) -> None:
    backbone = load("qwen2")
    messages = [Message("user", [Doc("pier"), Doc("storm"), QUESTION])]
    for spelling, first_is_exact in (("qcfuse:1,template=on", True), ("qcfuse:1", False)):
        chat = asked(backbone, messages, spelled(spelling, 0))
        assert chat.turn is not None
        counts = [segment.ids.shape[0] for segment in chat.turn.layout.chunks]
        assert chat.turn.repaired == (counts[1] if first_is_exact else sum(counts))
        torch.testing.assert_close(
            chat.turn.logits, native_logits(full_request(library(backbone), messages, 0))[-1], **CLOSE
        )


@pytest.mark.parametrize("name", VISION)
def test_pages_are_repaired_without_the_vision_tower(
    load: Load, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bank.open(tmp_path) as bank:
        engine = Engine(load(name), bank, page=CARD)
        engine.compile(DOCUMENTS, "epic:k=4,dpi=72")
        monkeypatch.setattr(Backbone, "encode_page", lambda *_: pytest.fail("a page was encoded"))
        answer = engine.ask(QUESTION, [document.id for document in DOCUMENTS], method="epic:k=4,dpi=72", sampling=NONE)
    assert answer.tokens["recomputed"] == 4 * len(answer.sources)


@pytest.mark.parametrize("spelling", REPAIRING)
def test_a_later_turn_repairs_what_is_new_in_it(load: Load, spelling: str) -> None:
    engine = Engine(load("qwen2"))
    for document in DOCUMENTS:
        engine.add(document)
    chat = engine.chat(method=spelling)
    chat.ask(QUESTION, ["storm"], sampling=Sampling(max_tokens=3))
    assert chat.context is not None
    first, used = [keys.clone() for keys in chat.context.keys], chat.context.size
    chat.ask("And the dogs?", ["pier", "dogs"], sampling=NONE)
    assert chat.turn is not None
    assert chat.turn.repaired > 0
    for before, after in zip(first, chat.context.keys, strict=True):
        assert torch.equal(before[:, :, :used], after[:, :, :used]), "earlier turns stay as they were read"


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("cacheblend:1.5", "cacheblend:ratio=1.5 is not a share"),
        ("qcfuse:-0.1", "qcfuse:ratio=-0.1 is not a share"),
        ("qcfuse:digest=2", "qcfuse:digest=2.0 is not a share"),
        ("qcfuse-view:layers=0", "at least one critical layer"),
        ("epic:-1", "0 or more"),
        ("epic:500", "document pier has a passage of"),
        ("qcfuse:layer=7", "critical layer 7: the model has layers 0 to"),
        ("qcfuse:layer=-3", "qcfuse:layer=-3: give a layer's number from 0 on"),
        ("cacheblend:check=9", "cacheblend:check=9: the model has layers 0 to"),
    ],
)
def test_what_cannot_be_repaired_is_named(load: Load, spelling: str, message: str) -> None:
    engine = Engine(load("qwen2"))
    for document in DOCUMENTS:
        engine.add(document)
    with pytest.raises(MethodError, match=message) as caught:
        engine.ask(QUESTION, ["pier", "dogs"], method=spelling)
    assert "\n" not in str(caught.value)


def test_most_important_rows_are_picked_over_all_documents_together() -> None:
    passages = [Repairable("a", torch.arange(0, 4)), Repairable("b", torch.arange(6, 12))]
    scores = torch.tensor([0.0, 0.5, 0.1, 0.4, 9.0, 9.0, 0.3, 0.3, 0.3, 0.9, 0.0, 0.0])
    picked = selectors.most_important(passages, scores, ratio=0.5)
    assert picked.tolist() == [1, 3, 6, 7, 9], "rows 4 and 5 are no passage's; of equal rows the first are taken"
    assert selectors.most_important(passages, scores, ratio=0.0).tolist() == []
    assert selectors.first_rows(passages, k=2).tolist() == [0, 1, 6, 7]


def test_a_document_twice_in_a_request_is_repaired_in_both_places(load: Load) -> None:
    messages = [Message("user", [Doc("storm"), "Again: ", Doc("storm"), QUESTION])]
    backbone = load("qwen3")
    expected = native_logits(full_request(library(backbone), messages, 0))[-1]
    torch.testing.assert_close(logits(backbone, messages, spelled("qcfuse:1", 0)), expected, **CLOSE)


def test_companions_leave_with_their_document(load: Load, tmp_path: Path) -> None:
    with Bank.open(tmp_path) as bank:
        engine = Engine(load("glm4v"), bank, page=CARD)
        engine.compile(DOCUMENTS, "qcfuse:dpi=72")
        assert bank.verify() == []
        whole = {info.id: (info.passages, info.rows) for info in bank.documents()}
        plain = Engine(load("glm4v"), page=CARD)
        plain.compile(DOCUMENTS, "prefix-free:dpi=72")
        assert whole == {info.id: (info.passages, info.rows) for info in plain.bank.documents()}
        kept = set(bank.store.keys())
        bank.put_document(Document("storm", "Another text."))
        gone = kept - set(bank.store.keys())
        assert len(gone) == 3, "the page, its visual embeddings and its anchors"
        for document in ("pier", "storm", "dogs"):
            bank.remove(document)
        assert set(bank.store.keys()) == set()


@pytest.mark.parametrize("method", ["prefix-free", "template", "epic:1", "qcfuse"])
def test_a_prompt_that_ends_with_a_document_is_refused(load: Load, method: str) -> None:
    engine = Engine(load("qwen2"))
    for document in DOCUMENTS:
        engine.add(document)
    for content in ([Doc("pier")], ["Look: ", Doc("pier"), " and ", Doc("storm")]):
        with pytest.raises(MethodError, match="put some after it"):
            engine.ask([Message("user", content)], method=method, raw=True)
    assert engine.ask([Message("user", [Doc("pier")])], method="full", raw=True, sampling=NONE).tokens["fresh"] > 0


def test_many_scattered_rows_are_computed_block_by_block(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = load("qwen3")
    whole = logits(backbone, SCATTERED, spelled("qcfuse:0.6", 0))
    monkeypatch.setattr("kvbind.models.attention.BLOCK", 7)
    torch.testing.assert_close(logits(backbone, SCATTERED, spelled("qcfuse:0.6", 0)), whole, rtol=1e-4, atol=1e-5)
