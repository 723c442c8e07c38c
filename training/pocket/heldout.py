"""Held-out questions, measured while training: the share of whole answers right, as greedy decoding would give them."""

from collections import defaultdict
from typing import Any

from batches import TEXT, Batch, Shown, Tokens, collate
from material import Entry
from model import DPIS
from pages import Pages

from kvbind.notes import make_context


def held_out(tokens: Tokens, notes: int, count: int = 24, questions: int = 5) -> dict[str, list[Batch]]:
    """Batches over contexts of the evaluation split, by representation; `mixed` shows the asked note at 120 DPI."""
    made: dict[str, list[Any]] = defaultdict(list)
    pages = Pages(tokens.tokenizer)
    for seed in range(count):
        context = make_context(10_000 + seed, notes=notes, questions=questions, split="eval")
        entries = [Entry(note.text, note.id.partition("/")[2], ()) for note in context.notes]
        asked = [("ask", question.text, question.answer, question.gold) for question in context.questions]
        drawn = {dpi: [_page(pages, entry, dpi) for entry in entries] for dpi in DPIS}
        made["text"].append(([Shown(entry, TEXT) for entry in entries], asked))
        for dpi in DPIS:
            made[str(dpi)].append((drawn[dpi], asked))
        sharp = context.questions[0].gold
        mixed = [drawn[120 if place == sharp else 72][place] for place in range(notes)]
        made["mixed"].append((mixed, [question for question in asked if question[3] == sharp]))
    return {
        name: [collate(tokens, contexts[at : at + 8]) for at in range(0, count, 8)] for name, contexts in made.items()
    }


def _page(pages: Pages, entry: Entry, dpi: int) -> Shown:
    return Shown(entry, dpi, pages.draw(entry, dpi), pages.marks(entry))
