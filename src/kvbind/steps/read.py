"""The loop: every forward pass fills some rows of one context (full prefill, question, decoding, compiling alike)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from kvbind.methods.selectors import largest, share_of, value_deviation
from kvbind.models import Backbone, Context, DynamicKV, Features, Inputs, Pass, Rows, rows_blocks
from kvbind.steps.layout import Layout, Segment
from kvbind.types import Encoding


class Source(Protocol):
    """What brings stored rows into a context while it is read."""

    def place(self, layer: int) -> None:
        """Return when this layer's stored rows are in the context."""


@dataclass(frozen=True)
class Notes:
    """What a pass writes down, layer by layer, if it is asked to.

    `attention`: of the last row, over all rows, (B, T) each. `queries`: (B, Hq, R, D) each, rotated.
    """

    attention: list[Tensor] | None = None
    queries: list[Tensor] | None = None


@dataclass
class Narrowing:
    """Reused rows that are computed anew, ever fewer of them (CacheBlend).

    `reused` (size,) is true at all `total` rows that may be, `shares` says how many of them go on at a layer, those
    whose values differ most from the stored ones. `count`: how many are left; `counts`: those computed in each layer.
    """

    reused: Tensor
    total: int
    shares: Mapping[int, float]
    count: int
    counts: list[int] = field(default_factory=list)

    def kept(self, backbone: Backbone, context: Context, layer: int, x: Tensor, rows: Tensor) -> Tensor:
        """Numbers of the rows of this pass (n,) that go on; `x` (B, R, C) enters the layer."""
        reused = self.reused[rows]  # (R,)
        candidates = reused.nonzero()[:, 0]
        stored = context.values[layer][:, :, rows[candidates]]
        deviation = value_deviation(backbone.values(layer, x[:, candidates]), stored)
        best = candidates[largest(deviation, share_of(self.total, self.shares[layer]))]
        self.count = len(best)
        return torch.cat([best, (~reused).nonzero()[:, 0]]).sort().values


def read(
    backbone: Backbone,
    context: Context,
    inputs: Inputs,
    rows: Rows,
    positions: Tensor,
    *,
    layers: int | None = None,
    notes: Notes | None = None,
    source: Source | None = None,
    narrowing: Narrowing | None = None,
) -> Tensor:
    """Fill `rows` of the context with `inputs` (B, R, C) at `positions` (A, B, R); hidden states (B, R, C).

    Every row sees all rows before its own place and nothing after. `layers` stops early. A `source` brings stored rows
    as they are needed; with a `narrowing` the rows become fewer on the way, and hidden states are of those that are
    left.
    """
    rotary = backbone.rotary(inputs.x, positions)
    attention = _attention(context, rows, notes)
    for index in range(context.layers if layers is None else layers):
        if source is not None:
            source.place(index)
        if narrowing is not None and isinstance(rows, Tensor):
            if index in narrowing.shares:
                kept = narrowing.kept(backbone, context, index, inputs.x, rows)
                inputs, rows, positions = inputs.only(kept), rows[kept], positions[:, :, kept]
                rotary, attention = backbone.rotary(inputs.x, positions), _attention(context, rows, notes)
            narrowing.counts.append(narrowing.count)
        inputs = backbone.layer(index, inputs, context, rows, rotary, attention)
    return inputs.x


def _attention(context: Context, rows: Rows, notes: Notes | None) -> Pass:
    probe, queries = (notes.attention, notes.queries) if notes is not None else (None, None)
    if isinstance(rows, slice):
        if rows.start == 0 and rows.stop == context.size:
            return Pass(causal=True, probe=probe, queries=queries)
        if rows.stop - rows.start == 1 and rows.stop == context.size:
            return Pass(probe=probe, queries=queries)  # decoding: the last row sees everything
        rows = torch.arange(rows.start, rows.stop, device=context.device)
    return Pass(rows_blocks(rows), probe=probe, queries=queries)


@dataclass(frozen=True)
class Repair:
    """Reused rows (n,) that a request computes anew, in order; which are visual tokens, and the embeddings of those."""

    rows: Tensor
    image: Tensor
    features: Features | None
    narrowing: Narrowing

    @property
    def mean_rows(self) -> float:
        """How many were computed anew, averaged over layers."""
        counts = self.narrowing.counts
        return sum(counts) / max(len(counts), 1)


def read_fresh(
    backbone: Backbone,
    context: Context,
    layout: Layout,
    *,
    source: Source | None = None,
    repair: Repair | None = None,
) -> Tensor:
    """Fill every fresh row of a layout, wherever it stands, and those to be repaired; logits (V,) of the last row."""
    if repair is None or not len(repair.rows):
        return backbone.logits(fresh_hidden(backbone, context, layout, source)[:, -1:])[0, -1]
    rows = _rows(layout.of_kind("fresh"), context.device)
    own = torch.arange(rows.start, rows.stop, device=context.device) if isinstance(rows, slice) else rows
    rows, order = torch.cat([own, repair.rows]).sort()  # (R,)
    at = (rows - layout.segments[0].start).cpu()
    image = torch.cat([torch.zeros_like(own, dtype=torch.bool), repair.image])[order]
    inputs = backbone.embed(layout.ids[at][None].to(context.device), image[None], repair.features)
    positions = layout.positions[:, None, at].to(context.device)  # (A, 1, R)
    hidden = read(backbone, context, inputs, rows, positions, source=source, narrowing=repair.narrowing)
    return backbone.logits(hidden[:, -1:])[0, -1]


def fresh_hidden(backbone: Backbone, context: Context, layout: Layout, source: Source | None = None) -> Tensor:
    """Fill every fresh row of a layout, wherever it stands; hidden states (1, R, C) of all of them, in order."""
    fresh = layout.of_kind("fresh")
    rows = _rows(fresh, context.device)
    ids = torch.cat([segment.ids for segment in fresh])[None].to(context.device)  # (1, R)
    positions = torch.cat([segment.positions for segment in fresh], dim=1)[:, None].to(context.device)  # (A, 1, R)
    return read(backbone, context, embed_segments(backbone, fresh, ids), rows, positions, source=source)


def embed_segments(backbone: Backbone, segments: Sequence[Segment], ids: Tensor) -> Inputs:
    """Input rows (1, R, C) of some segments, page images among them run through the vision tower."""
    encodings = [segment.encoding for segment in segments if segment.encoding is not None]
    if not any(encoding.image is not None for encoding in encodings):
        return backbone.embed(ids)
    image = torch.cat([_image_rows(segment.encoding, segment.ids) for segment in segments])[None]
    return backbone.embed(ids, image.to(ids.device), backbone.features(encodings))


def _image_rows(encoding: Encoding | None, ids: Tensor) -> Tensor:
    if encoding is None or encoding.image is None:
        return torch.zeros(ids.shape, dtype=torch.bool)
    return encoding.image


def _rows(segments: Sequence[Segment], device: torch.device) -> Rows:
    spans = [segment.rows for segment in segments]
    if all(before.stop == after.start for before, after in pairwise(spans)):
        return slice(spans[0].start, spans[-1].stop)
    return torch.cat([torch.arange(span.start, span.stop, device=device) for span in spans])


def prefill(backbone: Backbone, layout: Layout) -> tuple[Tensor, DynamicKV]:
    """Full prefill of a layout by the model's own forward, never by the loop above: logits (V,) and its cache."""
    encodings = [segment.encoding for segment in layout.segments if segment.encoding is not None]
    return backbone.native(layout.ids, layout.positions, encodings)


def keep(context: Context, layout: Layout, cache: DynamicKV) -> None:
    """Move the native forward's keys and values into a context, for decoding to go on there."""
    rows = context.extend(layout.rows)
    context.position = layout.end
    for index, layer in enumerate(cache.layers):
        context.fill(index, rows, layer.keys, layer.values)
