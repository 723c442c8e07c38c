"""What one step of training does: contexts at the levels reached, their losses, and when to go on to harder ones."""

import argparse
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np
import torch
from batches import TEXT, Batch, Shown, Tokens, choose, collate
from glyphs import naming
from material import LEVELS, draw_kinds, leads, make, paragraphs
from model import DPIS
from pages import Pages
from reader import Reader, look, run
from torch import Tensor

PASSED = 0.80
"""Share of whole answers right in text, over the last steps, at which text goes on to its next level."""
PAGES_PASSED = (0.25, 0.25, 0.60)
"""The same for pages, by the level they are at; the last holds for all further ones.

The first are left sooner: pages of a few words have few glyphs to learn from, and one line, where a visual token of a
full page has parts of two lines or three. 72 DPI is at most one level behind, up to one full page.
"""
FULL_PAGE = 2
"""The level of one full page."""
READS = 0.35
"""Share of whole answers right in text at which pages may join."""
NAMED = 0.98
"""Share of glyphs named below which pages of a resolution are named outside of contexts too, in one step of three."""
JOIN = {72: 0.35, 120: 0.5}
"""Share of glyphs named at which pages of a resolution join the text."""
WEIGHTS = {72: 2.0, 120: 1.0}
"""What pages of each resolution count once several of the finest are read: the coarse ones are learned more slowly."""


def text_context(reader: Reader, rng: Random, share: float) -> Any:
    """Fresh notes as text, with questions."""
    entries = paragraphs([make(kind, rng) for kind in draw_kinds(LEVELS[reader.level[TEXT]], rng, share)], rng)
    before = leads(rng, len(entries))
    notes = [Shown(entry, TEXT, lead=lead) for entry, lead in zip(entries, before, strict=True)]
    return notes, choose(notes, rng, 8, 0.5 if len(notes) == 1 else 0.2)


def page_context(reader: Reader, pages: Pages, rng: Random, dpi: int, share: float) -> Any:
    """Notes as pages of a resolution, or (once the finest is read) now and then some at another, or as text."""
    mixed = begun(reader) and rng.random() < 0.25
    kinds, notes = draw_kinds(LEVELS[reader.level[dpi]], rng, share), []
    for kind, lead in zip(kinds, leads(rng, len(kinds)), strict=True):
        shown = rng.choice([*joined(reader), TEXT]) if mixed else dpi
        entry = pages.entry(kind, rng)
        page, marks = (None, None) if shown == TEXT else (pages.draw(entry, shown), pages.marks(entry))
        notes.append(Shown(entry, shown, page, marks, lead))
    return notes, choose(notes, rng, 8, 0.5)


def joined(reader: Reader) -> list[int]:
    """The resolutions whose pages have joined the text."""
    return [dpi for dpi in DPIS if reader.level[dpi] >= 0]


def begun(reader: Reader) -> bool:
    """Whether several pages of the finest resolution are read: until then, most of the time goes to it."""
    return reader.level[max(DPIS)] >= 4


@dataclass(frozen=True)
class Portion:
    """A part of a step: contexts of about one length, up to so many rows of them, for a share of the loss."""

    name: str
    make: Callable[[], Any]
    rows: float
    share: float


def portions(reader: Reader, pages: Pages, rng: Random, rows: int) -> list[Portion]:
    """Text, and pages of each resolution that has joined, apart: contexts of one batch are padded to its longest."""
    shown, size = joined(reader), rng.random()
    if not shown:
        return [Portion("text", lambda: text_context(reader, rng, size), rows * 2 / 3, 1.0)]
    learned = reader.level[TEXT] == len(LEVELS) - 1
    part, share = (1 / 6, 0.15) if learned else (1 / 4, 0.3)
    made = [Portion("text", lambda: text_context(reader, rng, size), rows * part, share)]
    weights = {dpi: WEIGHTS[dpi] if begun(reader) else 1.0 if dpi == max(shown) else 0.25 for dpi in shown}
    for dpi, weight in weights.items():
        weight /= sum(weights.values())
        make_context = partial(page_context, reader, pages, rng, dpi, rng.random())
        made.append(Portion(f"pages/{dpi}", make_context, rows * (1 - part) * weight, (1 - share) * weight))
    return made


def gather(make_context: Callable[[], Any], tokens: Tokens, rows: float) -> Batch:
    """A batch of about `rows` rows, padding included."""
    contexts, longest = [], 0
    while True:
        notes, questions = make_context()
        length = sum(length_of(note) for note in notes) + sum(
            text_rows(question + answer) + 10 for _, question, answer, _ in questions
        )
        longest = max(longest, length)
        if contexts and longest * (len(contexts) + 1) > rows:
            return collate(tokens, contexts)
        contexts.append((notes, questions))


def text_rows(text: str) -> int:
    """About how many rows a text takes."""
    return len(text) * 5 // 9


def length_of(note: Shown) -> int:
    """About how many rows a note takes."""
    lead = sum(map(text_rows, note.lead)) + len(note.lead)
    return lead + (text_rows(note.entry.text) + 3 if note.page is None else note.page.size // 784 + 2)


def warm_up(reader: Reader, pages: Pages, rng: Random, count: int) -> Tensor:
    """Loss of naming the glyphs of some pages alone."""
    entries = [pages.entry(rng.choices(("full", "jumble", "pairs"), (2, 2, 1))[0], rng) for _ in range(count)]
    due = [dpi for dpi in DPIS if reader.mean.get(f"named/{dpi}", 0.0) < NAMED or rng.random() < 0.25] or DPIS
    drawn = {dpi: torch.from_numpy(np.stack([pages.draw(entry, dpi) for entry in entries])) for dpi in due}
    standing = [pages.marks(entry) for entry in entries]
    marks = dict.fromkeys(due, standing)
    loss, shares = naming(reader.namer, reader.stack.embed_tokens.weight, look(reader, drawn), marks)
    for name, share in shares.items():
        reader.note(name, share)
    return loss


def advance(reader: Reader) -> None:
    """Let pages join, and representations go up a level, by what was measured."""
    for shown in (TEXT, *DPIS):
        if reader.level[shown] < 0:
            reads = reader.level[TEXT] >= 1 or reader.mean.get("ask/text", 0) >= READS
            if reads and reader.mean.get(f"named/{shown}", 0) >= JOIN[shown]:
                reader.level[shown] = 0
            continue
        key = f"ask/{shown or 'text'}"
        level = reader.level[shown]
        needed = PASSED if shown == TEXT else PAGES_PASSED[min(level, len(PAGES_PASSED) - 1)]
        trails = shown == 72 and level < min(reader.level[120] - 1, FULL_PAGE)
        if (trails or reader.mean.get(key, 0.0) >= needed) and level < len(LEVELS) - 1:
            reader.level[shown] += 1
            reader.mean[key] = 0.6 * needed


@torch.no_grad()
def measure(
    reader: Reader, tests: dict[int, dict[str, list[Batch]]], arguments: argparse.Namespace
) -> dict[str, float]:
    """Share of held-out questions whose whole answer is right, by number of notes and representation."""
    kept, shares = dict(reader.mean), {}
    autocast = torch.autocast(reader.device.type, torch.bfloat16) if arguments.bf16 else nullcontext()
    for notes, by_name in tests.items():
        for name, batches in by_name.items():
            with autocast:
                right = [value for batch in batches for group in run(reader, batch)[1].values() for value in group]
            shares[f"eval{notes}/{name}"] = round(sum(right) / len(right), 4)
    reader.mean = kept  # running means are of training alone
    return shares


def one_step(reader: Reader, pages: Pages, tokens: Tokens, arguments: argparse.Namespace) -> dict[str, float]:
    """One update of all weights."""
    rng = Random(f"{arguments.seed}/{reader.step}")
    if arguments.only == "vision":
        loss = _name_pages(reader, pages, rng, arguments, 1.0)
        clip(reader)
        return {"naming": loss}
    losses: dict[str, float] = {}
    right: dict[str, list[float]] = defaultdict(list)
    autocast = torch.autocast(reader.device.type, torch.bfloat16) if arguments.bf16 else nullcontext()
    for portion in portions(reader, pages, rng, arguments.rows):
        with autocast:
            loss, found, named = run(reader, gather(portion.make, tokens, portion.rows))
        total = portion.share * loss + (0.3 * named if named is not None else 0)
        total.backward()
        losses[portion.name] = float(loss.detach())
        if named is not None:
            losses["naming"] = float(named.detach())
        for key, values in found.items():
            right[key] += values
    badly = any(reader.mean.get(f"named/{dpi}", 0.0) < NAMED for dpi in DPIS)
    if len(joined(reader)) < len(DPIS) or (badly and reader.step % 3 == 0):
        losses["naming"] = _name_pages(reader, pages, rng, arguments, 0.3 if joined(reader) else 1.0)
    for key, values in right.items():
        reader.note(key, sum(values) / len(values))
    clip(reader)
    return losses


def _name_pages(reader: Reader, pages: Pages, rng: Random, arguments: argparse.Namespace, share: float) -> float:
    """Gradients of naming what stands on some pages, and its loss."""
    autocast = torch.autocast(reader.device.type, torch.bfloat16) if arguments.bf16 else nullcontext()
    with autocast:
        named = warm_up(reader, pages, rng, arguments.warm)
    (share * named).backward()
    return float(named.detach())


def clip(reader: Reader) -> None:
    """Bound the gradients."""
    torch.nn.utils.clip_grad_norm_([*reader.model.parameters(), *reader.namer.parameters()], 1.0)
