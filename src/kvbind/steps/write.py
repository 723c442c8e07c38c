"""Compiling: each chunk alone, after the rows that its method puts before it, which are dropped again."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from kvbind.methods import Write
from kvbind.models import Backbone, Context, Inputs, Rows, Writer, line
from kvbind.steps.read import read
from kvbind.types import Encoding, StackedKV

Forward = Callable[[Backbone, Context, Inputs, Rows, Tensor], Tensor]


def frame_ids(backbone: Backbone, write: Write, *, page: bool) -> list[int]:
    """The token ids before a chunk while it is compiled: none, dummies, or the native chat-template head."""
    if write.frame == "bare":
        return []
    if write.frame == "dummy":
        return backbone.tokens("x")[:1] * write.count
    return backbone.tokens(backbone.chat.head("page" if page else "text"), special=True)


def add_soft_rows(encoding: Encoding, header: int, trailer: int) -> Encoding:
    """A text's encoding with soft rows (id −1) around it, which take up positions like tokens (KV Packet)."""
    rows = header + encoding.ids.shape[0] + trailer
    ids = torch.full((rows,), -1)
    ids[header : rows - trailer] = encoding.ids
    span = header + encoding.span + trailer
    return replace(encoding, ids=ids, positions=line(0, rows, encoding.positions.shape[0]), span=span)


def write_passages(
    backbone: Backbone,
    encodings: Sequence[Encoding],
    frame: Sequence[int],
    writer: Writer | None = None,
    forward: Forward = read,
) -> list[StackedKV]:
    """Keys and values of each encoding, compiled as one batch behind the same frame (QV-PIC, eq. 1).

    A trained `writer` has its LoRA on meanwhile, and fills the soft rows. `forward` runs the layers. Shorter encodings
    are padded on the right, where causal attention lets no real row see the padding.
    """
    ids, positions, image = _padded(encodings, frame, backbone.family.axes)
    context = backbone.context(ids.shape[1], batch=len(encodings))
    rows, device = context.extend(ids.shape[1]), backbone.device
    ids = ids.to(device)
    inputs = backbone.embed(ids.clamp(min=0), image.to(device), backbone.features(encodings))
    if writer is not None:
        inputs = replace(inputs, x=_fill_soft_rows(inputs.x, ids < 0, writer))
    with backbone.adapter(writer.adapter if writer is not None else ""):
        forward(backbone, context, inputs, rows, positions.to(device))
    lengths = [encoding.ids.shape[0] for encoding in encodings]
    return [_cut(context.keys, context.values, number, len(frame), length) for number, length in enumerate(lengths)]


def _padded(encodings: Sequence[Encoding], frame: Sequence[int], axes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids (B, T), positions (A, B, T), and where rows come from an image (B, T)."""
    before = len(frame)
    longest = before + max(encoding.ids.shape[0] for encoding in encodings)
    ids = torch.zeros(len(encodings), longest, dtype=torch.long)
    image = torch.zeros(len(encodings), longest, dtype=torch.bool)
    positions = line(0, longest, axes)[:, None].repeat(1, len(encodings), 1)  # (A, B, T)
    for number, encoding in enumerate(encodings):
        rows = slice(before, before + encoding.ids.shape[0])
        ids[number, :before] = torch.tensor(frame, dtype=torch.long)
        ids[number, rows] = encoding.ids
        positions[:, number, rows] = encoding.positions + before
        if encoding.image is not None:
            image[number, rows] = encoding.image
    return ids, positions, image


def _fill_soft_rows(x: Tensor, soft: Tensor, writer: Writer) -> Tensor:
    """Input rows (B, T, C) with each encoding's soft rows, marked in `soft` (B, T), put into their places."""
    rows = torch.cat((writer.header, writer.trailer)).to(x)  # (n, C)
    return x.masked_scatter(soft[..., None], rows.repeat(x.shape[0], 1)) if len(rows) else x


def _cut(keys: Sequence[Tensor], values: Sequence[Tensor], number: int, before: int, length: int) -> StackedKV:
    rows = slice(before, before + length)
    return StackedKV(
        torch.stack([layer[number, :, rows] for layer in keys]),  # (L, H, T, D)
        torch.stack([layer[number, :, rows] for layer in values]),
    )
