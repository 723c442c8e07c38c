"""The training recipe sees what the engine will show: the same ids, positions and pixels, and the same forward pass."""

import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

RECIPE = Path(__file__).parent.parent / "training" / "pocket"
sys.path.insert(0, str(RECIPE))

import batches  # noqa: E402
import forward  # noqa: E402
import glyphs  # noqa: E402
import material  # noqa: E402
import model as pocket  # noqa: E402
import pages  # noqa: E402

from kvbind import Document, Engine  # noqa: E402
from kvbind.models import Part, Turn  # noqa: E402
from kvbind.notes import make_sample  # noqa: E402
from kvbind.render import Renderer  # noqa: E402
from kvbind.steps.layout import lay_out  # noqa: E402

ENGLISH = "It was a bright cold day, and the clocks were striking.\n\nNobody saw the ship that came in with the fog."


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return pocket.train_tokenizer(ENGLISH, notes=150)


@pytest.fixture(scope="module")
def backbone(tokenizer: Any) -> Any:
    torch.set_num_threads(1)
    return pocket.backbone(pocket.build(tokenizer).eval().requires_grad_(False), tokenizer)


def entries(count: int) -> list[material.Entry]:
    rng = Random(5)
    return [material.make("full", rng) for _ in range(count)]


def shown(entry: material.Entry, dpi: int) -> batches.Shown:
    if dpi == batches.TEXT:
        return batches.Shown(entry, dpi)
    page = np.asarray(Renderer(pocket.CARD).draw(entry.text, dpi).convert("L"))
    return batches.Shown(entry, dpi, page)


def layout(backbone: Any, notes: list[batches.Shown], question: str, before: str = "") -> tuple[Any, list[Any]]:
    renderer = Renderer(pocket.CARD)
    contents = [
        backbone.encode_text(note.entry.text + "\n\n")
        if note.shown == batches.TEXT
        else backbone.encode_page(renderer.draw(note.entry.text, note.shown))
        for note in notes
    ]
    parts = [Part("text" if note.shown == batches.TEXT else "page") for note in notes]
    said = [before] if before else []
    pieces = backbone.chat.split([Turn("user", [*(Part("text") for _ in said), *parts, Part("text")])])
    return lay_out(backbone, pieces, [*said, *contents, question]), contents


@pytest.mark.parametrize("dpis", [(0, 0, 0), (72, 72), (120, 120, 120), (72, 0, 120, 72)])
def test_a_training_prompt_is_the_prompt_of_full_prefill(backbone: Any, tokenizer: Any, dpis: tuple[int, ...]) -> None:
    notes = [shown(entry, dpi) for entry, dpi in zip(entries(len(dpis)), dpis, strict=True)]
    chosen = batches.choose(notes, Random(1), 3, 1.0)
    batch = batches.collate(batches.Tokens(tokenizer), [(notes, chosen)])
    for branch, (_, question, answer, _) in enumerate(chosen, 1):
        expected, _ = layout(backbone, notes, question)
        rows = (batch.branch[0] == 0) | (batch.branch[0] == branch)
        ids, positions, labels = batch.ids[0, rows], batch.positions[:, 0, rows], batch.labels[0, rows]
        assert torch.equal(ids[: expected.rows], expected.ids)
        assert torch.equal(positions[:, : expected.rows], expected.positions)
        target = [*tokenizer(" " + answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        assert ids[expected.rows :].tolist() == target[:-1]
        assert positions[0, expected.rows :].tolist() == list(range(expected.end, expected.end + len(target) - 1))
        assert labels[expected.rows - 1 :].tolist() == target
        assert (labels[: expected.rows - 1] == -100).all()


@pytest.mark.parametrize("dpi", [batches.TEXT, 72])
def test_needles_are_asked_for_as_the_benchmark_does(backbone: Any, tokenizer: Any, dpi: int) -> None:
    made = [shown(material.make("needles", Random(number)), dpi) for number in range(2)]
    chosen = batches.choose(made, Random(1), 1, 0.0)
    batch = batches.collate(batches.Tokens(tokenizer), [(made, chosen)])
    (_, question, _, _), before = chosen[0], made[0].entry.before
    assert ("text in the images" in question) == (dpi != batches.TEXT)
    expected, _ = layout(backbone, made, question, before if dpi == batches.TEXT else "")
    assert torch.equal(batch.ids[0, : expected.rows], expected.ids)
    assert torch.equal(batch.positions[:, 0, : expected.rows], expected.positions)


def test_the_fast_forward_pass_is_the_models_own(backbone: Any, tokenizer: Any) -> None:
    notes = [shown(entry, dpi) for entry, dpi in zip(entries(3), (120, 72, 120), strict=True)]
    chosen = batches.choose(notes, Random(1), 4, 0.0)
    batch = batches.collate(batches.Tokens(tokenizer), [(notes, chosen), (notes[:1], chosen[:0])])
    stack, visual = backbone.stack, backbone.model.model.visual
    x = stack.embed_tokens(batch.ids)
    for dpi, drawn in batch.pages.items():
        cut = (forward.patches(drawn).float() / 255 - 1) / pocket.PROCESSOR["image_std"][0]
        seen = forward.see(visual, cut, *forward.places(visual, drawn.shape[1] // 14, drawn.shape[2] // 14))
        x = x.masked_scatter(batch.image[dpi][..., None], seen.flatten(0, 1))
    mask = forward.seen_mask(batch.branch)
    hidden = forward.decode_rows(stack, x, *forward.rotary(stack, batch.positions), mask)
    for branch, (_, question, _, _) in enumerate(chosen, 1):
        expected, contents = layout(backbone, notes, question)
        row = ((batch.branch[0] == 0) | (batch.branch[0] == branch)).nonzero()[expected.rows - 1, 0]
        native, _ = backbone.native(expected.ids, expected.positions, contents)
        torch.testing.assert_close(backbone.model.lm_head(hidden[0, row]), native, atol=1e-4, rtol=1e-4)


def test_marks_stand_where_they_are_said_to(tokenizer: Any) -> None:
    for entry in entries(4):
        marks = glyphs.mark(tokenizer, entry.text, pages.glyphs(Renderer(pocket.CARD), entry.text))
        for dpi in pocket.DPIS:
            page, reach = shown(entry, dpi).page, dpi // 18
            assert page is not None
            for _, x, y in marks.glyphs:
                left, top = int(x * dpi / 72), int(y * dpi / 72)
                assert page[max(0, top - reach) : top + reach, max(0, left - reach) : left + reach].min() < 160
            token, place, _ = glyphs.locate([marks.glyphs], dpi, most=10_000)
            assert len(token) == sum(not character.isspace() for character in entry.text)
            assert token.max() < page.size // glyphs.CELL**2
            assert place.max() < glyphs.BINS**2
        drawn = [glyphs.GLYPHS[int(code)] for code in marks.glyphs[:, 0]]
        assert "".join(drawn) == "".join(entry.text.split())
        ids = tokenizer(entry.text, add_special_tokens=False)["input_ids"]
        assert marks.words[:, 0].astype(int).tolist() == ids
        firsts = [tokenizer.convert_ids_to_tokens(token).lstrip("Ġ")[0] for token in ids]
        places = {(float(x), float(y)): glyphs.GLYPHS[int(code)] for code, x, y in marks.glyphs}
        read = [(places[float(x), float(y)], first) for (_, x, y), first in zip(marks.words, firsts, strict=True)]
        assert all(glyph == first for glyph, first in read if first.isascii())


def test_an_answer_is_the_same_tokens_as_in_the_note(tokenizer: Any) -> None:
    for seed in range(30):
        sample = make_sample(seed, notes=1)
        note, answer = (
            tokenizer(text, add_special_tokens=False)["input_ids"]
            for text in (sample.notes[0].text, " " + sample.answer)
        )
        assert any(note[start : start + len(answer)] == answer for start in range(len(note)))
        assert tokenizer.decode(answer) == sample.answer


def test_a_written_folder_is_loaded_by_the_engine(backbone: Any, tokenizer: Any, tmp_path: Path) -> None:
    pocket.export(backbone.model, tokenizer, tmp_path)
    engine = Engine.from_pretrained(tmp_path, page=pocket.CARD)
    sample = make_sample(1, notes=2, split="eval")
    for method in ("full", "template:dpi=72", "qv-pic"):
        assert engine.ask(sample.question, list(sample.notes), method=method).finish in ("stop", "length")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 30e6
    assert engine.backbone.tokens("[gMASK]<sop><|user|>\n", special=True) == batches.Tokens(tokenizer).head
    assert len(batches.Tokens(tokenizer).head) == 4


def test_the_writers_beside_the_recipe_are_those_of_the_model_that_ships() -> None:
    engine = Engine.from_pretrained("pocket")
    folders = list((RECIPE / "writers").iterdir())
    assert folders
    for folder in folders:
        method = engine.method(f"{folder.name}:adapter={folder}")
        assert engine.compile([Document("a", "The ferry sails at noon.")], method).compiled == 1
