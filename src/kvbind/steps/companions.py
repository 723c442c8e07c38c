"""What repair needs beside a passage: a page's visual embeddings, and anchor rows. Computed once, kept in the bank.

Each is a record of its own, linked to the same chunk, so that passages are shared with methods that need neither.
"""

import math
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from kvbind.bank import content_key
from kvbind.errors import DocumentError, MethodError
from kvbind.methods import Method, Write
from kvbind.methods.selectors import Probe, largest
from kvbind.models import Backbone, Features, line
from kvbind.steps.fetch import fetch
from kvbind.steps.layout import Segment
from kvbind.steps.library import Library
from kvbind.steps.plan import Choice
from kvbind.steps.read import Notes, read
from kvbind.steps.stitch import place
from kvbind.types import Page, Passage, StackedKV

REPEAT = "\nRepeat the previous context:\n"
BLOCK = 512

ALWAYS = 4
"""The first rows of a passage are always among anchors scored by repeating (KVzip)."""


def prepare(library: Library, choices: Sequence[Choice], method: Method) -> None:
    """Compute and keep what a method's repair will need of compiled chunks, so that no request has to."""
    if method.selector is None or method.write is None:
        return
    probe = method.selector.probe
    layers = critical_layers(library, probe) if probe is not None else ()
    for choice in choices:
        if isinstance(choice.representation, Page):
            visual_inputs(library, choice, method.write)
        if probe is not None:
            passage = fetch(library, [choice], method)[0][0]
            anchors(library, choice, passage, method.write, probe, layers)


def critical_layers(library: Library, probe: Probe) -> tuple[int, ...]:
    """The layers whose attention tells what matters: given, or the model's profile, or those around its middle."""
    depth = library.backbone.shape[0]
    wrong = [layer for layer in probe.layers if not 0 <= layer < depth]
    if wrong:
        raise MethodError(f"critical layer {wrong[0]}: the model has layers 0 to {depth - 1}")
    if probe.layers:
        return probe.layers
    middle = sorted(range(depth), key=lambda layer: abs(layer - depth // 2))
    return tuple(library.ranked_layers or middle)[: probe.count]


def visual_inputs(library: Library, choice: Choice, write: Write) -> Features:
    """A page's rows as they came from the vision tower (T, C), so that some of them can be computed anew without it."""
    key = content_key({"passage": choice.key, "kept": "visual embeddings"})
    stored = library.bank.get(key)
    if stored is None:
        encoding = library.encode(choice.chunk, choice.representation)
        found = library.backbone.features([encoding])
        assert found is not None
        # A record has keys and values; this one has no rows of them.
        none = library.backbone.context(0)
        kv = StackedKV(torch.stack(none.keys)[:1, 0], torch.stack(none.values)[:1, 0])
        extras = {"rows": torch.cat(list(found.rows)).to(none.dtype)}
        extras |= {f"deep.{n}": torch.cat(list(level)).to(none.dtype) for n, level in enumerate(found.deep)}
        stored = Passage(key, encoding.ids[:0], encoding.positions[:, :0], 0, 0, kv, extras)
        _put(library, stored, choice, write, "visual embeddings")
    deep = [stored.extras[f"deep.{number}"] for number in range(len(stored.extras) - 1)]
    device = library.backbone.device
    return Features((stored.extras["rows"].to(device),), tuple((level.to(device),) for level in deep))


def anchors(
    library: Library, choice: Choice, whole: Passage, write: Write, probe: Probe, layers: Sequence[int]
) -> Passage:
    """The anchors of a passage for some critical layers, from the bank, or made now and kept there."""
    facts = {"passage": choice.key, "kept": "anchors", "by": probe.anchors, "digest": probe.digest}
    key = content_key({**facts, "layers": list(layers)})
    stored = library.bank.get(key)
    if stored is not None:
        return stored
    found = make_anchors(library, choice, whole, write, probe, layers, key)
    _put(library, found, choice, write, "anchors")
    return found


def make_anchors(
    library: Library, choice: Choice, whole: Passage, write: Write, probe: Probe, layers: Sequence[int], key: str = ""
) -> Passage:
    """The rows of a passage that stand for it before the question, with keys and values up to the last critical layer.

    By key norm at the first critical layer (QCFuse, 2604.08585), or by how much attention they get when the passage
    is repeated (2606.05875).
    """
    rows = _anchor_rows(library, choice, whole, write, probe, layers[0])
    keys, values = whole.kv.span(0, max(layers) + 1)
    kv = StackedKV(keys[:, :, rows].contiguous(), values[:, :, rows].contiguous())
    return Passage(key, whole.ids[rows], whole.positions[:, rows], whole.span, whole.origin, kv)


def _put(library: Library, record: Passage, choice: Choice, write: Write, what: str) -> None:
    library.companions_made += 1
    with suppress(DocumentError):  # the document was removed meanwhile; this request goes on with what it has
        library.bank.put(record, chunk=choice.chunk, representation=f"{choice.shown}, {what}", write=write.label)


def _anchor_rows(library: Library, choice: Choice, whole: Passage, write: Write, probe: Probe, layer: int) -> Tensor:
    count = math.ceil(probe.digest * whole.rows)
    if count in (0, whole.rows):
        return torch.arange(count)
    if probe.anchors == "norm":
        return largest(whole.kv.k(layer).float().norm(dim=-1).mean(dim=0), count).cpu()
    scores = _repeat_scores(library, choice, whole, write)
    scores[:ALWAYS] = float("inf")
    return largest(scores, max(count, min(ALWAYS, whole.rows)))


def _repeat_scores(library: Library, choice: Choice, whole: Passage, write: Write) -> Tensor:
    """The most attention (T,) that each row gets from any head while the passage is repeated, mean over layers (KVzip).

    A page is repeated as its text; of a long passage, what fits into the model's window.
    """
    backbone, axes = library.backbone, library.backbone.family.axes
    frame = torch.tensor(library.frame(write, choice.representation), dtype=torch.long)
    room = backbone.window - whole.origin - whole.span
    told = torch.tensor((backbone.tokens(REPEAT) + backbone.tokens(choice.chunk.text))[: max(room, 1)])
    context = backbone.context(len(frame) + whole.rows + len(told))
    context.extend(context.capacity)
    where = Segment("passage", whole.ids, whole.positions + whole.origin, len(frame))
    if len(frame):
        head = Segment("head", frame, line(0, len(frame), axes), 0)
        place(backbone, context, head, library.head(frame), 0)
    place(backbone, context, where, whole.kv, 0)
    notes = Notes(queries=[])
    rows = slice(where.rows.stop, context.size)
    positions = line(whole.origin + whole.span, len(told), axes)[:, None]
    inputs = backbone.embed(told[None].to(backbone.device))
    read(backbone, context, inputs, rows, positions.to(backbone.device), notes=notes)
    scores = [
        _most_attention(backbone, layer, query, context.keys[layer], where.rows, rows)
        for layer, query in enumerate(notes.queries or ())
    ]
    return torch.stack(scores).mean(dim=0).cpu()


def _most_attention(backbone: Backbone, layer: int, query: Tensor, key: Tensor, where: slice, rows: slice) -> Tensor:
    """For rows `where`, the largest attention (T,) of any head at any of `rows`, from query and key (1, H, T, D)."""
    groups = query.shape[1] // key.shape[1]
    best = key.new_zeros(where.stop - where.start, dtype=torch.float32)
    for head in range(query.shape[1]):  # by head and block: all attention at once may be large
        for start in range(0, query.shape[2], BLOCK):
            part = query[0, head, start : start + BLOCK].float()  # (R, D)
            last = rows.start + start + part.shape[0]
            scores = part @ key[0, head // groups, :last].float().T * backbone.scaling(layer)  # (R, T)
            own = torch.arange(rows.start + start, last, device=key.device)
            ahead = torch.arange(last, device=key.device) > own[:, None]
            best = torch.maximum(best, scores.masked_fill(ahead, float("-inf")).softmax(-1)[:, where].amax(dim=0))
    return best
