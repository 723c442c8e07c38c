"""Contexts with several questions as padded batches: each question sees the context and itself, as if asked alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch
from glyphs import CELL, Marks
from material import READ, READ_ABOUT, Entry
from torch import Tensor

TEXT = 0
"""Beside the resolutions in DPI, the representation of a note as text."""


@dataclass(frozen=True)
class Shown:
    """An entry in one representation: TEXT, or a DPI with its page and marks; `lead` is text that stands before it."""

    entry: Entry
    shown: int
    page: np.ndarray | None = None
    marks: Marks | None = None
    lead: tuple[str, ...] = ()


@dataclass
class Batch:
    """Rows of B contexts; `pages` by DPI in the order in which their rows occur, all of one resolution first.

    ids, branch, labels, weight, asked (B, T), positions (3, B, T). `asked` numbers the answers from 1 on; `group` is
    each answer's key in the log.
    """

    ids: Tensor
    positions: Tensor
    branch: Tensor
    labels: Tensor
    weight: Tensor
    asked: Tensor
    image: dict[int, Tensor]
    pages: dict[int, Tensor]
    marks: dict[int, list[Marks]]
    group: list[str] = field(default_factory=list)


class Tokens:
    """Token ids of texts, and of the template's own pieces."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.head = self.ids("[gMASK]<sop><|user|>\n", special=True)
        self.tail = self.ids("<|assistant|>\n", special=True)
        self.begin, self.image, self.end = self.ids("<|begin_of_image|><|image|><|end_of_image|>", special=True)
        self.stop = int(tokenizer.eos_token_id)

    def ids(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text alone; `special` where the template wrote it."""
        return list(self.tokenizer(text, add_special_tokens=False, split_special_tokens=not special)["input_ids"])


def _page_rows(tokens: Tokens, page: np.ndarray) -> tuple[list[int], np.ndarray, int]:
    """Ids, positions (3, T) and span of a page, by the model's own rule."""
    rows, columns = page.shape[0] // CELL, page.shape[1] // CELL
    longest = max(rows, columns)
    place = np.zeros((3, rows * columns + 2), dtype=np.int64)
    place[0, 1:-1] = 1
    place[1, 1:-1] = 1 + np.repeat(np.arange(rows), columns)
    place[2, 1:-1] = 1 + np.tile(np.arange(columns), rows)
    place[:, -1] = 1 + longest
    return [tokens.begin] + [tokens.image] * rows * columns + [tokens.end], place, longest + 2


class _Rows:
    """Rows of one context as they are put one after the other."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[np.ndarray] = []
        self.branch: list[int] = []
        self.labels: list[int] = []
        self.weight: list[float] = []
        self.asked: list[int] = []

    def put(self, ids: Sequence[int], positions: np.ndarray, branch: int = 0) -> None:
        self.ids += ids
        self.positions.append(positions)
        self.branch += [branch] * len(ids)
        self.labels += [-100] * len(ids)
        self.weight += [0.0] * len(ids)
        self.asked += [0] * len(ids)


def _straight(start: int, count: int) -> np.ndarray:
    return np.broadcast_to(np.arange(start, start + count), (3, count))


def _context(tokens: Tokens, notes: Sequence[Shown]) -> tuple[_Rows, int]:
    rows, position = _Rows(), len(tokens.head)
    rows.put(tokens.head, _straight(0, position))
    if notes[0].page is None and notes[0].entry.before:
        ids = tokens.ids(notes[0].entry.before)
        rows.put(ids, _straight(position, len(ids)))
        position += len(ids)
    for note in notes:
        before = [token for text in note.lead for token in tokens.ids(text)]
        rows.put(before, _straight(position, len(before)))
        position += len(before)
        if note.page is None:
            ids = tokens.ids(note.entry.text + "\n\n")
            rows.put(ids, _straight(position, len(ids)))
            position += len(ids)
        else:
            ids, place, span = _page_rows(tokens, note.page)
            rows.put(ids, place + position)
            position += span
    return rows, position


def _ask(
    rows: _Rows, tokens: Tokens, position: int, branch: int, asked: int, pair: tuple[str, str], part: float
) -> None:
    question = tokens.ids(pair[0]) + tokens.tail
    answer = [*tokens.ids(" " + pair[1]), tokens.stop]  # so that its first word is the token that the note has
    start = len(rows.ids) + len(question) - 1
    ids = question + answer[:-1]
    rows.put(ids, _straight(position, len(ids)), branch)
    rows.labels[start:] = answer
    rows.weight[start:] = [part] * len(answer)
    rows.asked[start:] = [asked] * len(answer)


def choose(notes: Sequence[Shown], rng: Random, most: int, reading: float) -> list[tuple[str, str, str, int]]:
    """Up to `most` questions about some notes, and now and then the task to read one: kind, question, answer, note."""
    said = "" if notes[0].page is None else notes[0].entry.before.replace("following text", "text in the images")
    asked = [(place, *pair) for place, note in enumerate(notes) for pair in note.entry.questions]
    pool = [("ask", said + question, answer, place) for place, question, answer in asked]
    chosen = rng.sample(pool, min(most, len(pool)))
    if not pool or rng.random() < reading:
        place = rng.randrange(len(notes))
        entry = notes[place].entry
        chosen.append(("read", READ if len(notes) == 1 else READ_ABOUT.format(entry.subject), entry.text, place))
    return chosen


def collate(tokens: Tokens, contexts: Sequence[tuple[Sequence[Shown], Sequence[tuple[str, str, str, int]]]]) -> Batch:
    """A padded batch of contexts with their questions."""
    made, group = [], []
    for notes, questions in contexts:
        rows, position = _context(tokens, notes)
        for branch, (task, question, answer, place) in enumerate(questions, 1):
            shown = notes[place].shown
            group.append(f"{task}/{shown or 'text'}")
            part = 1.0 if task == "ask" else 0.5
            _ask(rows, tokens, position, branch, len(group), (question, answer), part)
        made.append(rows)
    size = -(-max(len(rows.ids) for rows in made) // 32) * 32
    shown = [note for notes, _ in contexts for note in notes if note.page is not None]
    resolutions = sorted({note.shown for note in shown})
    ids = _padded([rows.ids for rows in made], size, tokens.stop)
    positions = torch.zeros(3, len(made), size, dtype=torch.long)
    for number, rows in enumerate(made):
        placed = np.concatenate(rows.positions, axis=1)
        positions[:, number, : placed.shape[1]] = torch.from_numpy(placed)
    return Batch(
        ids,
        positions,
        _padded([rows.branch for rows in made], size, -1),
        _padded([rows.labels for rows in made], size, -100),
        _padded([rows.weight for rows in made], size, 0.0),
        _padded([rows.asked for rows in made], size, 0),
        {dpi: _image_rows(tokens, contexts, ids, dpi) for dpi in resolutions},
        {dpi: torch.from_numpy(np.stack([note.page for note in shown if note.shown == dpi])) for dpi in resolutions},
        {dpi: [note.marks for note in shown if note.shown == dpi] for dpi in resolutions},
        group,
    )


def _padded(rows: Sequence[Sequence[Any]], size: int, fill: Any) -> Tensor:
    return torch.tensor([[*row, *[fill] * (size - len(row))] for row in rows])


def _image_rows(tokens: Tokens, contexts: Sequence[Any], ids: Tensor, dpi: int) -> Tensor:
    """True (B, T) at the visual tokens of one resolution."""
    image = ids == tokens.image
    for number, (notes, _) in enumerate(contexts):
        pages = [note for note in notes if note.page is not None]
        counts = [note.page.shape[0] // CELL * (note.page.shape[1] // CELL) for note in pages]
        flags = [torch.full((count,), note.shown == dpi) for note, count in zip(pages, counts, strict=True)]
        if flags:
            image[number, image[number].nonzero()[:, 0]] = torch.cat(flags)
    return image
