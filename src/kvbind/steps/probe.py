"""The question, read lightly: which reused rows it looks at, before anything is repaired (QCFuse)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbind.methods import Method
from kvbind.methods.selectors import Probe
from kvbind.models import Backbone, Context
from kvbind.steps.companions import anchors, critical_layers
from kvbind.steps.layout import Segment
from kvbind.steps.library import Library
from kvbind.steps.read import Notes, read
from kvbind.steps.stitch import Stitched, place_layers
from kvbind.types import Passage


@torch.no_grad()
def importance(library: Library, method: Method, request: Stitched) -> Tensor:
    """How much the question looks at every row of the context (size,), 0 at rows that are not a passage's.

    Anchors of the passages stand before the question, where they stand in the request; the question, which is the
    prompt's last segment, is read behind them up to the last critical layer. Its queries there meet all the passages'
    keys of that layer: softmax over all of them, averaged over question rows, heads and critical layers (2606.05875).
    """
    assert method.write is not None
    backbone, probe = library.backbone, probe_of(method)
    layers, pairs = critical_layers(library, probe), zip(request.choices, request.passages, strict=True)
    digests = [anchors(library, choice, passage, method.write, probe, layers) for choice, passage in pairs]
    queries = probe_question(backbone, request, digests, max(layers) + 1)
    found = [looked_at(backbone, request, queries[layer], layer) for layer in layers]
    scores = torch.zeros(request.context.size)
    scores[request.rows] = torch.stack(found).mean(dim=0)
    return scores


def looked_at(backbone: Backbone, request: Stitched, query: Tensor, layer: int) -> Tensor:
    """How much the question, by its queries (1, Hq, R, D) of one layer, looks at every row of the passages (N,)."""
    return mean_attention(query[0], _moved_keys(backbone, request, layer), backbone.scaling(layer)).cpu()


def probe_of(method: Method) -> Probe:
    """The probe of a method that has one."""
    assert method.selector is not None
    assert method.selector.probe is not None
    return method.selector.probe


def probe_question(backbone: Backbone, request: Stitched, digests: Sequence[Passage], depth: int) -> list[Tensor]:
    """Queries (1, Hq, R, D) of the question's rows in each of the first `depth` layers, anchors before it."""
    question = request.layout.segments[-1]
    before = _rows_before(request)
    counts = [digest.rows for digest in digests]
    shape = (depth, *backbone.shape[1:])
    size = before + sum(counts) + question.ids.shape[0]
    context = Context(shape, size, dtype=backbone.dtype, device=backbone.device)
    context.extend(size)
    for layer in range(depth):
        context.keys[layer][:, :, :before] = request.context.keys[layer][:, :, :before]
        context.values[layer][:, :, :before] = request.context.values[layer][:, :, :before]
    start = before
    for segment, passage, digest in zip(request.segments, request.passages, digests, strict=True):
        shift = segment.anchor - passage.origin
        where = Segment("passage", digest.ids, digest.positions, start)
        place_layers(backbone, context, where, 0, *digest.kv.span(0, depth), shift)
        start += digest.rows
    notes = Notes(queries=[])
    inputs = backbone.embed(question.ids[None].to(backbone.device))
    positions = question.positions[:, None].to(backbone.device)
    read(backbone, context, inputs, slice(start, size), positions, layers=depth, notes=notes)
    return notes.queries or []


def _rows_before(request: Stitched) -> int:
    """How many rows stand filled before the passages: the head's, or those of earlier turns."""
    first = request.layout.segments[0]
    return first.rows.stop if first.kind == "head" else first.start


def _moved_keys(backbone: Backbone, request: Stitched, layer: int) -> Tensor:
    """Keys (H, N, D) of all passages in one layer, where the request puts them; nothing else is read of them."""
    parts = []
    for segment, passage in zip(request.segments, request.passages, strict=True):
        keys = passage.kv.k(layer).to(backbone.device)
        parts.append(backbone.rope.rotate(keys, segment.anchor - passage.origin))
    return torch.cat(parts, dim=1)


def mean_attention(query: Tensor, keys: Tensor, scaling: float, mask: Tensor | None = None) -> Tensor:
    """Softmax attention (N,) of query (Hq, R, D) over keys (H, N, D), averaged over heads and rows, in float32.

    `mask` (R, N) is true where a row may look; None: everywhere.
    """
    grouped = query.float().reshape(keys.shape[0], -1, *query.shape[1:])  # (H, G, R, D)
    scores: Tensor = grouped @ keys.float().transpose(-1, -2)[:, None] * scaling  # (H, G, R, N)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1).mean(dim=(0, 1, 2))
