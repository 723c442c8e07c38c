"""Placing passages: keys re-rotated from where they were compiled to where they stand, values as they are."""

from collections.abc import Sequence

from torch import Tensor

from kvbind.models import Backbone, Context
from kvbind.steps.layout import Layout, Segment
from kvbind.types import KV, Passage, StackedKV


def stitch(
    backbone: Backbone,
    context: Context,
    layout: Layout,
    head: KV | None,
    passages: Sequence[Passage],
) -> None:
    """Take the layout's rows into use and fill those of the head and the passages; fresh rows are left to `read`.

    `passages` come in the order of the request's parts.
    """
    context.extend(layout.rows)
    context.position = layout.end
    if head is not None:
        place(backbone, context, layout.of_kind("head")[0], head, 0)
    compiled = [segment for segment in layout.chunks if segment.kind == "passage"]
    for segment, passage in zip(compiled, passages, strict=True):
        place(backbone, context, segment, passage.kv, segment.anchor - passage.origin)


def place(backbone: Backbone, context: Context, segment: Segment, kv: KV, shift: int) -> None:
    """Fill one segment's rows from stored keys (moved by `shift`) and values."""
    if isinstance(kv, StackedKV) and context.blocks is not None:
        _place_block(backbone, context.blocks, segment, kv, shift)
    else:
        _place_layers(backbone, context, segment, kv, shift)


def _place_layers(backbone: Backbone, context: Context, segment: Segment, kv: KV, shift: int) -> None:
    for layer in range(context.layers):
        keys = context.keys[layer][0, :, segment.rows]  # (H, T, D)
        backbone.rope.rotate(kv.k(layer).to(keys), shift, out=keys)
        context.values[layer][0, :, segment.rows].copy_(kv.v(layer))


def _place_block(
    backbone: Backbone, blocks: tuple[Tensor, Tensor], segment: Segment, kv: StackedKV, shift: int
) -> None:
    # All layers in one operation: on a GPU the launches, not the bytes, are what a stitch costs.
    keys, values = (block[:, 0, :, segment.rows] for block in blocks)  # (L, H, T, D) each
    backbone.rope.rotate(kv.keys.to(keys), shift, out=keys)
    values.copy_(kv.values)
