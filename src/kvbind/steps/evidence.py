"""Where an answer came from: how the last question row's attention divides over the documents."""

import torch
from torch import Tensor

from kvbind.models import Backbone, Context, line
from kvbind.steps.layout import Layout
from kvbind.steps.read import Notes, read


def attention_shares(backbone: Backbone, context: Context, layout: Layout) -> list[float]:
    """Share of the last prompt row's attention on each chunk, in the order of the request's parts.

    Taken at the middle layer, averaged over heads; what remains to 1 lies on the head and on fresh text. The row is
    read once more up to that layer, which costs half a decoding step and lies outside all timings.
    """
    last = layout.segments[-1]
    row = last.rows.stop - 1
    middle = backbone.shape[0] // 2
    seen: list[Tensor] = []
    rows = torch.tensor([row], device=context.device)
    kept = [(keys[:, :, row].clone(), values[:, :, row].clone()) for keys, values in _layers(context, middle + 1)]
    position = int(last.positions[0, -1])
    positions = line(position, 1, backbone.family.axes)[:, None].to(context.device)
    inputs = backbone.embed(last.ids[-1:][None].to(context.device))
    read(backbone, context, inputs, rows, positions, layers=middle + 1, notes=Notes(attention=seen))
    for (keys, values), (old_keys, old_values) in zip(_layers(context, middle + 1), kept, strict=True):
        keys[:, :, row], values[:, :, row] = old_keys, old_values
    attention = seen[-1][0].cpu()  # (T,)
    return [float(attention[segment.rows].sum()) for segment in layout.chunks]


def _layers(context: Context, count: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(context.keys[:count], context.values[:count], strict=True))
