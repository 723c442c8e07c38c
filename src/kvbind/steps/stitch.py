"""Placing passages: keys re-rotated from where they were compiled to where they stand, values as they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbind.models import Backbone, Context
from kvbind.steps.layout import Layout, Segment
from kvbind.steps.plan import Choice
from kvbind.types import KV, Passage, StackedKV


@dataclass(frozen=True)
class Stitched:
    """A request in its context: its chunks and their passages, in the order of its parts."""

    layout: Layout
    context: Context
    choices: Sequence[Choice]
    passages: Sequence[Passage]

    @property
    def segments(self) -> list[Segment]:
        """The passages' segments, in the same order."""
        return self.layout.chunks

    @property
    def rows(self) -> Tensor:
        """The rows of all passages (N,), in the same order."""
        return torch.cat([torch.arange(segment.rows.start, segment.rows.stop) for segment in self.segments])


def stitch(
    backbone: Backbone,
    context: Context,
    layout: Layout,
    head: KV | None,
    passages: Sequence[Passage],
) -> None:
    """Take the layout's rows into use and fill those of the head and the passages; fresh rows are left to `read`.

    `passages` come in the order of the request's parts. Those that are not in memory are left to a feed.
    """
    context.extend(layout.rows)
    context.position = layout.end
    if head is not None:
        place(backbone, context, layout.of_kind("head")[0], head, 0)
    compiled = [segment for segment in layout.chunks if segment.kind == "passage"]
    for segment, passage in zip(compiled, passages, strict=True):
        if isinstance(passage.kv, StackedKV):
            place(backbone, context, segment, passage.kv, segment.anchor - passage.origin)


def place(backbone: Backbone, context: Context, segment: Segment, kv: KV, shift: int) -> None:
    """Fill one segment's rows, in as many layers as there are, from stored keys (moved by `shift`) and values."""
    place_layers(backbone, context, segment, 0, *kv.span(0, kv.layers), shift)


def place_layers(
    backbone: Backbone, context: Context, segment: Segment, first: int, keys: Tensor, values: Tensor, shift: int
) -> None:
    """Fill one segment's rows from layer `first` on, from keys and values (n, H, T, D)."""
    layers = slice(first, first + keys.shape[0])
    if context.blocks is None:
        for layer, key, value in zip(range(layers.start, layers.stop), keys, values, strict=True):
            target = context.keys[layer][0, :, segment.rows]  # (H, T, D)
            backbone.rope.rotate(key.to(target), shift, out=target)
            context.values[layer][0, :, segment.rows].copy_(value)
        return
    # Several layers in one operation: on a GPU the launches, not the bytes, are what a stitch costs.
    into_keys, into_values = (block[layers, 0, :, segment.rows] for block in context.blocks)
    backbone.rope.rotate(keys.to(into_keys), shift, out=into_keys)
    into_values.copy_(values)
