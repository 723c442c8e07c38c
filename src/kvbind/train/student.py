"""The student: the frozen reader over what a writer compiles, by the same write → stitch → read that serves."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kvbind.methods import Write
from kvbind.models import Backbone, Context, Part, Turn, Writer, line
from kvbind.models.chat import Piece
from kvbind.steps.fetch import BATCH_ROWS
from kvbind.steps.layout import Content, Layout, Segment, lay_out
from kvbind.steps.library import Library
from kvbind.steps.read import fresh_hidden, read
from kvbind.steps.stitch import stitch
from kvbind.steps.write import Forward, add_soft_rows, write_passages
from kvbind.train.data import Example
from kvbind.types import Encoding, Passage, Text
from kvbind.writers import WriterConfig


@dataclass(frozen=True)
class Prompt:
    """An example as the model will see it: the chat template's pieces, and what stands in them."""

    pieces: Sequence[Piece]
    contents: Sequence[str | Encoding]

    @property
    def documents(self) -> list[Encoding]:
        """The documents, in order."""
        return [content for content in self.contents if isinstance(content, Encoding)]

    def lay_out(self, backbone: Backbone, chunks: Sequence[Content]) -> Layout:
        """The request with `chunks` in the places of its documents."""
        filled = iter(chunks)
        contents = [next(filled) if isinstance(content, Encoding) else content for content in self.contents]
        return lay_out(backbone, self.pieces, contents)


def make_prompt(backbone: Backbone, example: Example) -> Prompt:
    """The prompt that `Engine.ask` makes of an example's documents and question."""
    texts = [example.before] if example.before else []
    documents = [backbone.encode_text(text + Text().ending) for text in example.documents]
    contents: list[str | Encoding] = [*texts, *documents, example.question]
    return Prompt(backbone.chat.split([Turn("user", [Part("text")] * len(contents))]), contents)


def with_answer(layout: Layout, ids: Tensor, axes: int) -> Layout:
    """A request with an answer's token ids (n,) read after it."""
    segment = Segment("fresh", ids, line(layout.end, len(ids), axes), layout.rows)
    return Layout((*layout.segments, segment), layout.end + len(ids))


@dataclass(frozen=True)
class Student:
    """A reader over a writer's passages; without a `writer`, over documents compiled alone (naive stitching).

    `forward` runs the writer's layers.
    """

    library: Library
    config: WriterConfig
    writer: Writer | None = None
    forward: Forward = read

    @property
    def backbone(self) -> Backbone:
        """The model of both."""
        return self.library.backbone

    @cached_property
    def frame(self) -> list[int]:
        """The token ids before a document while it is compiled."""
        return self.library.frame(Write(self.config.frame), Text())

    def compile(self, prompts: Sequence[Prompt]) -> list[list[Passage]]:
        """The passages of each prompt's documents; equal documents are compiled once."""
        wanted: dict[tuple[int, ...], Encoding] = {}
        for prompt in prompts:
            for document in prompt.documents:
                soft = add_soft_rows(document, self.config.header, self.config.trailer)
                wanted.setdefault(tuple(document.ids.tolist()), soft)
        made = {}
        limit = BATCH_ROWS.get(self.backbone.device.type, BATCH_ROWS["cuda"])
        for names in _packed(wanted, limit):
            encodings = [wanted[name] for name in names]
            compiled = write_passages(self.backbone, encodings, self.frame, self.writer, self.forward)
            for name, encoding, kv in zip(names, encodings, compiled, strict=True):
                made[name] = Passage("", encoding.ids, encoding.positions, encoding.span, len(self.frame), kv)
        return [[made[tuple(document.ids.tolist())] for document in prompt.documents] for prompt in prompts]

    def stitch(self, layout: Layout, passages: Sequence[Passage], room: int = 0) -> Context:
        """A context with the head and the passages in it, and `room` for rows to come."""
        context = self.backbone.context(layout.rows + room)
        heads = layout.of_kind("head")
        with torch.no_grad():
            head = self.library.head(heads[0].ids) if heads else None
        stitch(self.backbone, context, layout, head, passages)
        return context

    def logits(self, prompt: Prompt, passages: Sequence[Passage], ids: Tensor, count: int) -> Tensor:
        """Logits (count, V) of the last rows, an answer's token ids (n,) read after the prompt."""
        layout = with_answer(prompt.lay_out(self.backbone, passages), ids, self.backbone.family.axes)
        context = self.stitch(layout, passages)
        return self.backbone.logits(fresh_hidden(self.backbone, context, layout)[:, -count:])[0]


def _packed(encodings: dict[tuple[int, ...], Encoding], limit: int) -> Iterator[list[tuple[int, ...]]]:
    """Names of encodings in batches of like lengths, at most `limit` rows each, padding counted."""
    batch: list[tuple[int, ...]] = []
    for name in sorted(encodings, key=lambda name: encodings[name].ids.shape[0]):
        if batch and encodings[name].ids.shape[0] * (len(batch) + 1) > limit:
            yield batch
            batch = []
        batch.append(name)
    if batch:
        yield batch
