"""Trained writers at work: LoRA and soft rows on a model, their folders, and the methods that they serve."""

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import Load
from conversations import (
    DOCUMENTS,
    QUESTION,
    SCATTERED,
    SIMPLE,
    full_request,
    library,
    native_logits,
    reuse_request,
    spelled,
)
from kvbind import Bank, Engine, Sampling, parse_method
from kvbind.errors import KvbindError, MethodError, ModelError
from kvbind.models import Backbone, load_writer
from kvbind.models.identity import model_facts
from kvbind.steps.write import add_soft_rows, write_passages
from kvbind.types import Encoding
from kvbind.writers import read_writer
from tiny import FAMILIES
from writing import CONFIGS, METHODS, drawn_folder, drawn_writer

families = pytest.mark.parametrize("name", FAMILIES)
some = pytest.mark.parametrize("name", ["llama", "qwen3", "glm4v"])
methods = pytest.mark.parametrize("method", METHODS)
CLOSE = {"rtol": 1e-4, "atol": 2e-4}
BRIEF = Sampling(max_tokens=3)


def encodings_of(backbone: Backbone, method: str = "sempic") -> list[Encoding]:
    config = CONFIGS[method]
    texts = [backbone.encode_text(document.text + "\n\n") for document in DOCUMENTS]
    return [add_soft_rows(encoding, config.header, config.trailer) for encoding in texts]


# On the model


@families
@torch.no_grad()
def test_a_model_with_its_adapter_off_is_the_model_bit_by_bit(fresh: Load, name: str) -> None:
    backbone = fresh(name)
    request = full_request(library(backbone), SIMPLE, 0)
    before, facts = native_logits(request), dict(backbone.facts)
    writer = drawn_writer(backbone, "sempic")
    assert torch.equal(native_logits(request), before)
    with backbone.adapter(writer.adapter):
        assert (native_logits(request) - before).abs().max() > 0.05
    assert torch.equal(native_logits(request), before)
    again = model_facts(backbone.model, backbone.tokenizer, backbone.chat.source, backbone.image_processor)
    assert again == facts, "the fingerprint is that of the base model"


@families
def test_only_the_decoders_projections_are_adapted(fresh: Load, name: str) -> None:
    backbone = fresh(name)
    drawn_writer(backbone, "sempic")
    adapted = {n.rpartition(".lora_A")[0] for n, _ in backbone.model.named_modules() if n.endswith(".lora_A")}
    decoder = {module: n for n, module in backbone.model.named_modules()}[backbone.stack]
    layers = range(backbone.shape[0])
    assert adapted == {f"{decoder}.layers.{i}.self_attn.{p}_proj" for i in layers for p in "qkvo"}


@some
@torch.no_grad()
def test_lora_compiles_as_a_model_with_the_update_in_its_weights(fresh: Load, name: str) -> None:
    """An independent reference: W + BA·α/r, written into the weights of a model without any adapter."""
    backbone, merged = fresh(name), fresh(name)
    writer = drawn_writer(backbone, "sempic")
    tensors = writer.tensors()
    for place, module in merged.stack.named_modules():
        if f"lora.{place}.lora_A.weight" in tensors:
            a, b = (tensors[f"lora.{place}.lora_{side}.weight"] for side in "AB")
            module.weight += b @ a * (CONFIGS["sempic"].alpha / CONFIGS["sempic"].rank)
    for kv, expected in zip(
        write_passages(backbone, encodings_of(backbone), [], writer),
        write_passages(merged, encodings_of(merged), []),
        strict=True,
    ):
        torch.testing.assert_close(kv.keys, expected.keys, **CLOSE)
        torch.testing.assert_close(kv.values, expected.values, **CLOSE)


@some
@torch.no_grad()
def test_soft_rows_are_embeddings_around_the_document(fresh: Load, name: str) -> None:
    """An independent reference: the model's own forward over input embeddings, at consecutive positions."""
    backbone = fresh(name)
    writer = drawn_writer(backbone, "kv-packet")
    encodings = encodings_of(backbone, "kv-packet")
    for encoding, kv in zip(encodings, write_passages(backbone, encodings, [], writer), strict=True):
        ids = encoding.ids[encoding.ids >= 0]
        assert len(encoding.ids) - len(ids) == 5
        rows = torch.cat((writer.header, backbone.stack.embed_tokens(ids), writer.trailer))
        positions = (
            torch.arange(len(rows)).expand(3, 1, -1) if backbone.family.axes == 3 else torch.arange(len(rows))[None]
        )
        cache = backbone.stack(inputs_embeds=rows[None], position_ids=positions, use_cache=True).past_key_values
        for layer, kept in enumerate(cache.layers):
            torch.testing.assert_close(kv.k(layer), kept.keys[0], **CLOSE)
            torch.testing.assert_close(kv.v(layer), kept.values[0], **CLOSE)


@some
@methods
@torch.no_grad()
def test_writing_in_a_batch_equals_writing_alone(fresh: Load, name: str, method: str) -> None:
    backbone = fresh(name)
    writer, encodings = drawn_writer(backbone, method), encodings_of(backbone, method)
    frame = backbone.tokens(backbone.chat.head("text"), special=True)
    for together, encoding in zip(write_passages(backbone, encodings, frame, writer), encodings, strict=True):
        (alone,) = write_passages(backbone, [encoding], frame, writer)
        torch.testing.assert_close(together.keys, alone.keys, **CLOSE)
        torch.testing.assert_close(together.values, alone.values, **CLOSE)


def test_an_adapter_is_off_again_whatever_happens_and_gradients_are_as_before(fresh: Load) -> None:
    backbone = fresh("llama")
    first, second = drawn_writer(backbone, "sempic"), drawn_writer(backbone, "joint")
    weights = first.parameters()
    with backbone.adapter(first.adapter):
        with backbone.adapter(second.adapter):
            assert backbone.adapters.active == second.adapter
        assert backbone.adapters.active == first.adapter
    with pytest.raises(TypeError), backbone.adapter(first.adapter):
        backbone.embed(None)
    assert backbone.adapters.active == ""
    assert all(parameter.requires_grad for parameter in weights), "a loss arrives when the adapter is off"
    trained = {name for name, p in backbone.model.named_parameters() if p.requires_grad}
    assert len(trained) == len(weights)
    assert all(first.adapter in name for name in trained)


# Through the engine


@some
@methods
def test_a_writer_serves(fresh: Load, tmp_path: Path, name: str, method: str) -> None:
    backbone = fresh(name)
    drawn_folder(backbone, method, tmp_path / "writer")
    spelling = f"{method}:adapter={tmp_path / 'writer'}"
    engine = Engine(backbone, Bank.open(tmp_path / "bank", hot_bytes=0))
    report = engine.compile(DOCUMENTS, spelling)
    config = CONFIGS[method]
    bare = engine.compile(DOCUMENTS, "prefix-free")
    assert report.rows - bare.rows == 3 * (config.header + config.trailer)
    asked = engine.ask(QUESTION, DOCUMENTS, method=spelling, sampling=BRIEF, explain=True)
    assert [source.state for source in asked.sources] == ["hit"] * 3
    assert asked.tokens["reused"] == report.rows
    compiled = Engine(fresh(name)).ask(QUESTION, DOCUMENTS, method=spelling, sampling=BRIEF)
    assert [source.state for source in compiled.sources] == ["compiled now"] * 3
    assert compiled.ids == asked.ids
    again = engine.ask(QUESTION, list(reversed(DOCUMENTS)), method=spelling, sampling=BRIEF)
    assert [source.state for source in again.sources] == ["hit"] * 3


@methods
def test_a_served_writer_changes_what_is_read(fresh: Load, tmp_path: Path, method: str) -> None:
    engine = Engine(fresh("qwen3"))
    drawn_folder(engine.backbone, method, tmp_path)
    logits = []
    for spelling in ("prefix-free", f"{method}:{tmp_path}"):
        chat = engine.chat(method=spelling)
        chat.ask(QUESTION, DOCUMENTS, sampling=BRIEF)
        assert chat.turn is not None
        logits.append(chat.turn.logits)
    assert (logits[0] - logits[1]).abs().max() > 0.05


@some
@methods
def test_layouts_differ_from_full_prefills_in_soft_rows_only(
    fresh: Load, tmp_path: Path, name: str, method: str
) -> None:
    lib = library(fresh(name))
    drawn_folder(lib.backbone, method, tmp_path)
    expected = full_request(lib, SCATTERED, 0).layout
    layout = reuse_request(lib, SCATTERED, spelled(f"{method}:{tmp_path}", 0)).layout
    config = CONFIGS[method]
    assert torch.equal(layout.ids[layout.ids >= 0], expected.ids)
    assert int((layout.ids < 0).sum()) == 3 * (config.header + config.trailer) == layout.end - expected.end
    assert torch.equal(layout.positions, torch.arange(layout.end).expand_as(layout.positions))


@methods
def test_repair_goes_with_writers(fresh: Load, tmp_path: Path, method: str) -> None:
    """Soft rows stay as they are; with a LoRA alone, computing every row anew is full prefill."""
    engine = Engine(fresh("qwen3"), weigh=False)
    drawn_folder(engine.backbone, method, tmp_path)
    written = engine.method(f"{method}:{tmp_path}")
    mixed = replace(written, selector=engine.method("cacheblend:ratio=1").selector)
    logits = {}
    for chosen in (written, mixed, engine.method("full")):
        chat = engine.chat(method=chosen)
        chat.ask(QUESTION, DOCUMENTS, sampling=BRIEF)
        assert chat.turn is not None
        logits[chosen.name, chosen.selector is not None] = chat.turn.logits
    distance = (logits[method, True] - logits["full", False]).abs().max()
    assert (distance < 1e-3) == (method == "sempic")
    assert (logits[method, True] - logits[method, False]).abs().max() > 0.05


def test_a_passages_key_follows_the_writers_bytes_not_its_place(fresh: Load, tmp_path: Path) -> None:
    lib = library(fresh("llama"))
    for folder, seed in (("one", 1), ("other", 2)):
        drawn_folder(lib.backbone, "sempic", tmp_path / folder, seed)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    writes = [parse_method(f"sempic:{tmp_path / folder}").write for folder in ("one", "copy", "other")]
    writes.append(parse_method("prefix-free").write)
    method = parse_method("prefix-free")
    chunk = lib.chunks(DOCUMENTS[0], method.representations[0])[0]
    keys = [lib.key(chunk, method.representations[0], write) for write in writes if write is not None]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3
    assert writes[0] == writes[1] != writes[2]


def test_a_template_frame_is_compiled_after_the_head(fresh: Load, tmp_path: Path) -> None:
    backbone = fresh("glm4v")
    trained = drawn_folder(backbone, "joint", tmp_path)
    facts = json.loads((tmp_path / "writer.json").read_text())
    facts["config"]["frame"] = "template"
    (tmp_path / "writer.json").write_text(json.dumps(facts))
    engine = Engine(backbone)
    method = engine.method(f"joint:{tmp_path}")
    assert method.write.frame == "template"
    assert method.write.writer.digest != trained.digest
    engine.compile(DOCUMENTS[:1], method)
    chunk = engine.library.chunks(DOCUMENTS[0], method.representations[0])[0]
    passage = engine.bank.get(engine.library.key(chunk, method.representations[0], method.write))
    assert passage.origin == len(backbone.tokens(backbone.chat.head("text"), special=True))


# What is refused


def test_a_writer_of_another_model_is_refused(fresh: Load, tmp_path: Path) -> None:
    backbone = fresh("llama")
    drawn_folder(backbone, "kv-packet", tmp_path)
    spelling = f"kv-packet:{tmp_path}"
    for name, dtype, words in (
        ("qwen3", "float32", "another model (other weights, config, tokenizer"),
        ("llama", "bfloat16", "load it so (--dtype float32)"),
    ):
        with pytest.raises(ModelError, match=r".") as caught:
            Engine(fresh(name, dtype)).ask(QUESTION, DOCUMENTS, method=spelling)
        assert words in str(caught.value)
    changed = fresh("llama")
    with torch.no_grad():
        changed.stack.layers[0].mlp.up_proj.weight[0, 0] += 1
    with pytest.raises(ModelError, match="other weights;"):
        Engine(changed).compile(DOCUMENTS, spelling)


def _broken_weights(folder: Path) -> None:
    data = bytearray((folder / "adapter.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "adapter.safetensors").write_bytes(bytes(data))


def _other_kind(folder: Path) -> None:
    facts = json.loads((folder / "writer.json").read_text())
    (folder / "writer.json").write_text(json.dumps({**facts, "config": {**facts["config"], "kind": "spell"}}))


def _later_format(folder: Path) -> None:
    facts = json.loads((folder / "writer.json").read_text())
    (folder / "writer.json").write_text(json.dumps({**facts, "format": 9}))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (_broken_weights, "adapter.safetensors is not the one that writer.json was written for"),
        (_other_kind, "does not describe a writer"),
        (_later_format, "format 9, this version reads 1"),
        (lambda folder: (folder / "writer.json").write_text("{"), "does not describe a writer"),
        (lambda folder: (folder / "writer.json").write_text("[]"), "does not describe a writer"),
        (lambda folder: (folder / "adapter.safetensors").unlink(), "cannot read"),
        (lambda folder: (folder / "writer.json").unlink(), "cannot read"),
    ],
)
def test_a_damaged_folder_is_refused(fresh: Load, tmp_path: Path, damage: Callable[[Path], object], words: str) -> None:
    drawn_folder(fresh("llama"), "sempic", tmp_path)
    damage(tmp_path)
    with pytest.raises(ModelError) as caught:
        parse_method(f"sempic:{tmp_path}")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_that_change_after_they_were_looked_at_are_refused(fresh: Load, tmp_path: Path) -> None:
    backbone = fresh("llama")
    trained = drawn_folder(backbone, "sempic", tmp_path)
    drawn_folder(backbone, "sempic", tmp_path, seed=5)
    with pytest.raises(ModelError, match="have changed"):
        load_writer(backbone, trained)
    assert load_writer(backbone, read_writer(tmp_path)) is load_writer(backbone, read_writer(tmp_path))


def test_weights_of_other_shapes_are_refused(fresh: Load) -> None:
    writer = drawn_writer(fresh("llama"), "joint")
    tensors = writer.tensors()
    name = next(iter(tensors))
    for wrong in ({**tensors, name: tensors[name][:-1]}, {**tensors, "extra": tensors[name]}):
        with pytest.raises(ModelError, match="do not go with"):
            writer.fill(wrong)


@pytest.mark.parametrize(
    ("spelling", "error", "words"),
    [
        ("sempic", MethodError, "sempic needs sempic:adapter=DIR, a folder that `kvbind train writer` made"),
        ("kv-packet:adapter=", MethodError, "`kvbind train packet`"),
        ("sempic:adapter=/nowhere", ModelError, "cannot read /nowhere/writer.json"),
        ("joint:{folder}", MethodError, "is the work of `kvbind train writer`: use sempic:adapter=DIR"),
    ],
)
def test_wrong_spellings_are_named(
    fresh: Load, tmp_path: Path, spelling: str, error: type[KvbindError], words: str
) -> None:
    drawn_folder(fresh("llama"), "sempic", tmp_path)
    with pytest.raises(error) as caught:
        parse_method(spelling.format(folder=tmp_path))
    assert words in str(caught.value)


def test_without_peft_the_mend_is_named(fresh: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = fresh("llama")
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(ModelError, match=r'pip install "kvbind\[train\]"'):
        drawn_writer(backbone, "sempic")
    drawn_writer(backbone, "kv-packet")  # soft rows need no PEFT


def test_a_writer_at_work_leaks_into_no_other_thread(fresh: Load, tmp_path: Path) -> None:
    backbone = fresh("qwen3")
    drawn_folder(backbone, "sempic", tmp_path / "writer")
    spelling = f"sempic:adapter={tmp_path / 'writer'}"
    wanted = Engine(backbone).ask(QUESTION, DOCUMENTS, method="full", sampling=BRIEF, explain=False)
    clean = Engine(backbone).chat(method="prefix-free")
    clean.ask(QUESTION, DOCUMENTS, sampling=BRIEF)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            Engine(backbone).compile(DOCUMENTS, spelling)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(15):
            chat = Engine(backbone).chat(method="prefix-free")
            chat.ask(QUESTION, DOCUMENTS, sampling=BRIEF)
            assert torch.equal(chat.turn.logits, clean.turn.logits)
            assert Engine(backbone).ask(QUESTION, DOCUMENTS, method="full", sampling=BRIEF).ids == wanted.ids
    finally:
        stop.set()
        writing.join()
