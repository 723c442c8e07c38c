"""The loop: every forward pass fills some rows of one context (full prefill, question, decoding, compiling alike)."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from kvbind.models import Backbone, Context, DynamicKV, Inputs, Pass, Rows, rows_mask
from kvbind.steps.layout import Layout, Segment
from kvbind.types import Encoding


def read(
    backbone: Backbone,
    context: Context,
    inputs: Inputs,
    rows: Rows,
    positions: Tensor,
    *,
    layers: int | None = None,
    probe: list[Tensor] | None = None,
) -> Tensor:
    """Fill `rows` of the context with `inputs` (B, R, C) at `positions` (A, B, R); hidden states (B, R, C).

    Every row sees all rows before its own place and nothing after. `layers` stops early; `probe` collects the last
    row's attention of every layer run, (B, T) each.
    """
    rotary = backbone.rotary(inputs.x, positions)
    attention = _attention(context, rows, probe)
    for index in range(backbone.shape[0] if layers is None else layers):
        inputs = backbone.layer(index, inputs, context, rows, rotary, attention)
    return inputs.x


def _attention(context: Context, rows: Rows, probe: list[Tensor] | None) -> Pass:
    if isinstance(rows, slice):
        if rows.start == 0 and rows.stop == context.size:
            return Pass(None, causal=True, probe=probe)
        if rows.stop - rows.start == 1 and rows.stop == context.size:
            return Pass(None, probe=probe)  # decoding: the last row sees everything
        rows = torch.arange(rows.start, rows.stop, device=context.device)
    return Pass(rows_mask(rows, context.size), probe=probe)


def read_fresh(backbone: Backbone, context: Context, layout: Layout) -> Tensor:
    """Fill every fresh row of a layout, wherever it stands; logits (V,) of the last row."""
    fresh = layout.of_kind("fresh")
    ids = torch.cat([segment.ids for segment in fresh])[None].to(context.device)  # (1, R)
    positions = torch.cat([segment.positions for segment in fresh], dim=1)[:, None].to(context.device)  # (A, 1, R)
    inputs = embed_segments(backbone, fresh, ids)
    hidden = read(backbone, context, inputs, _rows(fresh, context.device), positions)
    return backbone.logits(hidden[:, -1:])[0, -1]


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
