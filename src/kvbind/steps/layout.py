"""A request, planned: which rows stand where, in one order for every method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kvbind.models import Backbone, Fixed, line
from kvbind.models.chat import Piece
from kvbind.types import Encoding, Passage

Content = str | Encoding | Passage


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one kind: the head, a passage, or fresh rows (text, or a chunk not compiled).

    `ids` (T,), `positions` (A, T) in the request, `start` the first row, `part` the number of the content.
    """

    kind: Literal["head", "passage", "fresh"]
    ids: Tensor
    positions: Tensor
    start: int
    part: int | None = None
    encoding: Encoding | None = None

    @property
    def rows(self) -> slice:
        """The rows it fills."""
        return slice(self.start, self.start + self.ids.shape[0])

    @property
    def anchor(self) -> int:
        """The position at which it starts."""
        return int(self.positions[0, 0])


@dataclass(frozen=True)
class Layout:
    """The request's segments in order; `end` is the position after the last."""

    segments: tuple[Segment, ...]
    end: int

    @property
    def rows(self) -> int:
        """Rows in all."""
        return sum(segment.ids.shape[0] for segment in self.segments)

    @property
    def ids(self) -> Tensor:
        """Token ids of all rows (T,): the same for every method that shows the same representations."""
        return torch.cat([segment.ids for segment in self.segments])

    @property
    def positions(self) -> Tensor:
        """Positions of all rows (A, T)."""
        return torch.cat([segment.positions for segment in self.segments], dim=1)

    @property
    def chunks(self) -> list[Segment]:
        """The documents' segments, compiled or not, in the order of the request's parts."""
        return sorted((s for s in self.segments if s.part is not None), key=lambda segment: segment.part or 0)

    def of_kind(self, kind: str) -> list[Segment]:
        """The segments of one kind, in order."""
        return [segment for segment in self.segments if segment.kind == kind]

    def count(self, kind: str) -> int:
        """Rows of one kind."""
        return sum(segment.ids.shape[0] for segment in self.of_kind(kind))


def lay_out(
    backbone: Backbone,
    pieces: Sequence[Piece],
    contents: Sequence[Content],
    *,
    start: int = 0,
    position: int = 0,
    pending: Sequence[int] = (),
) -> Layout:
    """Place template pieces and contents one after the other, from row `start` and `position` on.

    Everything before the first document is the head, unless rows stand before it already (a further turn); `pending`
    token ids, sampled but not yet read, then come first. Text is tokenised here, once, each content alone.
    """
    segments: list[Segment] = []
    fresh: list[int] = list(pending)

    def flush() -> None:
        nonlocal fresh, position, start
        if fresh:
            head = not segments and start == 0 and any(not isinstance(content, str) for content in contents)
            ids, positions = torch.tensor(fresh), line(position, len(fresh), backbone.family.axes)
            segments.append(Segment("head" if head else "fresh", ids, positions, start))
            position, start, fresh = position + len(fresh), start + len(fresh), []

    for piece in pieces:
        content = piece.text if isinstance(piece, Fixed) else contents[piece.part]
        if isinstance(content, str):
            fresh = fresh + backbone.tokens(content, special=isinstance(piece, Fixed))
            continue
        flush()
        part = None if isinstance(piece, Fixed) else piece.part
        kind: Literal["passage", "fresh"] = "passage" if isinstance(content, Passage) else "fresh"
        encoding = content if isinstance(content, Encoding) else None
        segments.append(Segment(kind, content.ids, content.positions + position, start, part, encoding))
        position, start = position + content.span, start + content.ids.shape[0]
    flush()
    return Layout(tuple(segments), position)
