"""Compiling: each chunk alone, after the rows that its method puts before it, which are dropped again."""

from collections.abc import Sequence

import torch

from kvbind.methods import Write
from kvbind.models import Backbone, line
from kvbind.steps.read import read
from kvbind.types import Encoding, StackedKV


def frame_ids(backbone: Backbone, write: Write, *, page: bool) -> list[int]:
    """The token ids before a chunk while it is compiled: none, dummies, or the native chat-template head."""
    if write.frame == "bare":
        return []
    if write.frame == "dummy":
        return backbone.tokens("x")[:1] * write.count
    return backbone.tokens(backbone.chat.head("page" if page else "text"), special=True)


def write_passages(backbone: Backbone, encodings: Sequence[Encoding], frame: Sequence[int]) -> list[StackedKV]:
    """Keys and values of each encoding, compiled as one batch behind the same frame (QV-PIC, eq. 1).

    Shorter encodings are padded on the right, where causal attention lets no real row see the padding.
    """
    axes, before = backbone.family.axes, len(frame)
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
    context = backbone.context(longest, batch=len(encodings))
    rows = context.extend(longest)
    device = backbone.device
    inputs = backbone.embed(ids.to(device), image.to(device), backbone.features(encodings))
    read(backbone, context, inputs, rows, positions.to(device))
    lengths = [encoding.ids.shape[0] for encoding in encodings]
    return [_cut(context.keys, context.values, number, before, length) for number, length in enumerate(lengths)]


def _cut(
    keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor], number: int, before: int, length: int
) -> StackedKV:
    rows = slice(before, before + length)
    return StackedKV(
        torch.stack([layer[number, :, rows] for layer in keys]),  # (L, H, T, D)
        torch.stack([layer[number, :, rows] for layer in values]),
    )
