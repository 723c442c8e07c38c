"""The specification (docs/concepts.md, the laws), over every model family, on tiny random models.

Float32 throughout; `test_bfloat16` repeats the central ones with the tolerance stated there.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import Load
from conversations import (
    CARD,
    DOCUMENTS,
    QUESTION,
    SCATTERED,
    SHOWN,
    SIMPLE,
    Request,
    answer_logits,
    full_request,
    isolated_mask,
    library,
    native_logits,
    read_everything,
    reuse_request,
    spelled,
)
from kvbind import Bank, Doc, Engine, Message, Sampling
from kvbind.models import Backbone, line
from kvbind.steps.read import read, read_fresh
from kvbind.steps.stitch import stitch
from kvbind.steps.write import write_passages
from kvbind.types import Encoding, StackedKV
from tiny import FAMILIES, VISION

families = pytest.mark.parametrize("name", FAMILIES)
shown = pytest.mark.parametrize(("name", "dpi"), SHOWN)
pytestmark = pytest.mark.usefixtures("no_grad")
CLOSE = {"rtol": 1e-4, "atol": 2e-4}  # float32, other summation orders; logits have a standard deviation of about 2


@pytest.fixture
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@shown
@pytest.mark.parametrize("messages", [SIMPLE, SCATTERED], ids=["simple", "scattered"])
def test_reading_everything_equals_the_native_forward(load: Load, name: str, dpi: int, messages: list[Message]) -> None:
    request = full_request(library(load(name)), messages, dpi)
    torch.testing.assert_close(read_everything(request)[0], native_logits(request), rtol=1e-5, atol=1e-5)


@shown
def test_a_moved_key_equals_the_key_computed_there(load: Load, name: str, dpi: int) -> None:
    """Law 4, on the keys of whole passages: image positions included, every layer, small shifts and large."""
    lib = library(load(name))
    for segment in full_request(lib, SIMPLE, dpi).layout.segments:
        if segment.encoding is None:
            continue
        here = write_passages(lib.backbone, [segment.encoding], [])[0]
        for shift in (1, 37, 4096):
            there = _keys_at(lib.backbone, segment.encoding, shift)
            torch.testing.assert_close(lib.backbone.rope.rotate(here.keys, shift), there, rtol=1e-3, atol=2e-3)
        twice = lib.backbone.rope.rotate(lib.backbone.rope.rotate(here.keys, 37), -40)
        torch.testing.assert_close(twice, lib.backbone.rope.rotate(here.keys, -3), rtol=1e-4, atol=1e-4)


def _keys_at(backbone: Backbone, encoding: Encoding, origin: int) -> torch.Tensor:
    context = backbone.context(encoding.ids.shape[0])
    rows = context.extend(encoding.ids.shape[0])
    image = None if encoding.image is None else encoding.image[None]
    inputs = backbone.embed(encoding.ids[None], image, backbone.features([encoding]))
    read(backbone, context, inputs, rows, encoding.positions[:, None] + origin)
    return torch.stack([keys[0] for keys in context.keys])


@shown
def test_one_passage_after_the_head_equals_full_prefill(load: Load, name: str, dpi: int) -> None:
    lib = library(load(name))
    messages = [Message("user", [Doc("pier"), QUESTION])]
    reused = answer_logits(reuse_request(lib, messages, spelled("template", dpi)))
    torch.testing.assert_close(reused, native_logits(full_request(lib, messages, dpi))[-1], **CLOSE)


@shown
@pytest.mark.parametrize("messages", [SIMPLE, SCATTERED], ids=["simple", "scattered"])
def test_stitching_equals_a_forward_in_which_documents_see_only_themselves(
    load: Load, name: str, dpi: int, messages: list[Message]
) -> None:
    """An independent reference for the whole of plan, write, stitch and read: one native forward with a block mask."""
    lib = library(load(name))
    everything = full_request(lib, messages, dpi)
    expected = native_logits(everything, isolated_mask(everything.layout))
    reused = answer_logits(reuse_request(lib, messages, spelled("prefix-free", dpi)))
    torch.testing.assert_close(reused, expected[-1], **CLOSE)
    assert (reused - native_logits(everything)[-1]).abs().max() > 0.05, "documents saw one another: nothing was tested"


@shown
def test_every_method_sees_the_same_token_ids(load: Load, name: str, dpi: int) -> None:
    lib = library(load(name))
    expected = full_request(lib, SCATTERED, dpi).layout
    for spelling in ("prefix-free", "dummy:k=3", "template"):
        layout = reuse_request(lib, SCATTERED, spelled(spelling, dpi)).layout
        assert torch.equal(layout.ids, expected.ids)
        assert torch.equal(layout.positions, expected.positions)
        assert layout.end == expected.end


@shown
def test_compiling_in_a_batch_equals_compiling_alone(load: Load, name: str, dpi: int) -> None:
    lib = library(load(name))
    layout = full_request(lib, SIMPLE, dpi).layout
    encodings = [segment.encoding for segment in layout.segments if segment.encoding is not None]
    assert len({encoding.ids.shape[0] for encoding in encodings}) > 1, "equal lengths would need no padding"
    method = spelled("template", dpi)
    frame = lib.frame(method.write, method.representations[0])
    for together, encoding in zip(write_passages(lib.backbone, encodings, frame), encodings, strict=True):
        alone = write_passages(lib.backbone, [encoding], frame)[0]
        torch.testing.assert_close(together.keys, alone.keys, **CLOSE)
        torch.testing.assert_close(together.values, alone.values, **CLOSE)


@shown
def test_greedy_decoding_equals_generate(load: Load, name: str, dpi: int) -> None:
    backbone = load(name)
    engine = Engine(backbone, library(backbone).bank, page=CARD)
    spelling = f"full:dpi={dpi}" if dpi else "full"
    answer = engine.ask(SIMPLE, method=spelling, sampling=Sampling(max_tokens=12))
    request = full_request(engine.library, SIMPLE, dpi)
    generated = _generate(backbone, request, 12)
    kept = [token for token in generated if token not in backbone.stops]
    assert list(answer.ids) == kept
    assert len(set(generated)) > 1 or len(generated) < 12, "a constant output would prove little"


def _generate(backbone: Backbone, request: Request, count: int) -> list[int]:
    pages = [
        segment.encoding.pixels for segment in request.layout.segments if segment.encoding and segment.encoding.pixels
    ]
    images = backbone.family.vision.native(pages) if pages else {}
    if pages and backbone.family.axes > 1:
        image_token = backbone.model.config.image_token_id
        images["mm_token_type_ids"] = (request.layout.ids == image_token).int()[None]
    ids = request.layout.ids[None]
    output = backbone.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, pad_token_id=0, **images
    )
    return output[0, ids.shape[1] :].tolist()


@shown
def test_the_bank_round_trip_is_bit_exact(load: Load, name: str, dpi: int, tmp_path: Path) -> None:
    lib = library(load(name))
    passages = reuse_request(lib, SIMPLE, spelled("template", dpi)).passages
    bank = Bank.open(tmp_path / "bank", hot_bytes=0)
    for document, passage in zip(DOCUMENTS, passages, strict=True):
        bank.put_document(document)
        chunk = lib.chunks(document, spelled("full", dpi).representations[0])[0]
        bank.put(passage, chunk=chunk, representation="r", write="w")
        back = bank.get(passage.key)
        assert back is not None
        assert torch.equal(back.ids, passage.ids)
        assert torch.equal(back.positions, passage.positions)
        assert (back.span, back.origin) == (passage.span, passage.origin)
        for layer in range(passage.kv.layers):
            assert torch.equal(back.kv.k(layer), passage.kv.k(layer))
            assert torch.equal(back.kv.v(layer), passage.kv.v(layer))


@pytest.mark.parametrize("name", VISION)
@pytest.mark.parametrize("messages", [SIMPLE, SCATTERED], ids=["simple", "scattered"])
def test_joint_positions_equal_each_pages_own_plus_its_shift(load: Load, name: str, messages: list[Message]) -> None:
    """Law 11, end to end with page passages from the bank: the model's own rule over the whole prompt agrees."""
    lib = library(load(name))
    request = reuse_request(lib, messages, spelled("template", 72))
    backbone, layout = lib.backbone, request.layout
    assert layout.count("passage") > 0
    if backbone.family.axes == 1:
        expected = line(0, layout.rows, 1)
    else:
        segments = full_request(lib, messages, 72).layout.segments
        grids = [s.encoding.pixels["image_grid_thw"] for s in segments if s.encoding and s.encoding.pixels]
        image = (layout.ids == backbone.model.config.image_token_id).int()[None]
        joint, _ = backbone.model.model.get_rope_index(
            layout.ids[None], mm_token_type_ids=image, image_grid_thw=torch.cat(grids)
        )
        expected = joint[:, 0]
    assert torch.equal(layout.positions, expected)
    assert layout.end == int(expected.max()) + 1


@pytest.mark.parametrize("name", VISION)
def test_rows_and_positions_diverge_for_pages(load: Load, name: str) -> None:
    layout = full_request(library(load(name)), SIMPLE, 72).layout
    assert (layout.end < layout.rows) == (load(name).family.axes == 3)


@families
def test_exactly_one_beginning_of_sequence(load: Load, name: str) -> None:
    lib = library(load(name))
    layout = reuse_request(lib, SIMPLE, spelled("template", 0)).layout
    bos = lib.backbone.tokenizer.bos_token_id
    if bos is not None and bos in lib.backbone.tokens(lib.backbone.chat.head("text"), special=True):
        assert layout.ids.tolist().count(bos) == 1
        assert int(layout.ids[0]) == bos
    assert layout.segments[0].kind == "head"


@shown
def test_gradients_reach_a_passage_through_stitching_and_reading(load: Load, name: str, dpi: int) -> None:
    """What training a writer will stand on: the answer's loss moves every layer's stored keys and values."""
    lib = library(load(name))
    request = reuse_request(lib, SIMPLE, spelled("template", dpi))
    with torch.enable_grad():
        stored = [
            StackedKV(*(torch.stack([get(i) for i in range(p.kv.layers)]).requires_grad_() for get in (p.kv.k, p.kv.v)))
            for p in request.passages
        ]
        passages = [replace(p, kv=kv) for p, kv in zip(request.passages, stored, strict=True)]
        context = lib.backbone.context(request.layout.rows)
        head = lib.head(request.layout.segments[0].ids)
        stitch(lib.backbone, context, request.layout, head, passages)
        logits = read_fresh(lib.backbone, context, request.layout)
        torch.testing.assert_close(logits.detach(), answer_logits(request), **CLOSE)
        logits.log_softmax(-1)[7].backward()
    for kv in stored:
        for gradient in (kv.keys.grad, kv.values.grad):
            assert gradient is not None
            assert (gradient.abs().amax(dim=(1, 2, 3)) > 0).all(), "a layer got no gradient"


@shown
def test_bfloat16(load: Load, name: str, dpi: int) -> None:
    """The central laws in bfloat16, whose 8 bits of mantissa leave about 1 % per operation: logits within 0.35 of a
    standard deviation of about 2, where ignoring a document moves them by more."""
    lib = library(load(name, "bfloat16"))
    everything = full_request(lib, SIMPLE, dpi)
    torch.testing.assert_close(read_everything(everything)[0], native_logits(everything), rtol=0, atol=0.05)
    messages = [Message("user", [Doc("pier"), QUESTION])]
    reused = answer_logits(reuse_request(lib, messages, spelled("template", dpi)))
    expected = native_logits(full_request(lib, messages, dpi))[-1]
    torch.testing.assert_close(reused, expected, rtol=0, atol=0.35)
    isolated = native_logits(everything, isolated_mask(everything.layout))[-1]
    stitched = answer_logits(reuse_request(lib, SIMPLE, spelled("prefix-free", dpi)))
    torch.testing.assert_close(stitched, isolated, rtol=0, atol=0.35)
