"""Where stitched passages are read otherwise than the whole context: the question's attention, layer by layer.

SemPIC reports such a deviation near the boundaries of passages and in their interior, and a density ratio of their
first tokens, without formulas; those here are ours. Attention is the mean over heads and over the rows of the prompt's
last segment, the question's. For each place in a document (its first rows, its interior, its last rows):

- deviation = Σ |stitched − full| / Σ full, over all documents' rows of that place
- density ratio = Σ stitched / Σ full
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbind.engine import Engine
from kvbind.errors import MethodError, TrainingError
from kvbind.models import Backbone, Context
from kvbind.steps.decode import Sampling
from kvbind.steps.layout import Layout, Segment
from kvbind.steps.plan import Message
from kvbind.steps.probe import mean_attention
from kvbind.steps.read import Notes, read
from kvbind.train.data import Example
from kvbind.types import Doc, Document, text_digest

EDGE = 8
"""Rows at each end of a document that are told apart."""

PLACES = (*(f"+{n}" for n in range(1, EDGE + 1)), "interior", *(f"-{n}" for n in range(EDGE, 0, -1)))
"""Places in a document: offsets from its start, its interior, and offsets from its end."""


@dataclass(frozen=True)
class Deviations:
    """One method against full prefill by layer and place.

    `off`, `full` and `stitched` are Σ |stitched − full|, Σ full and Σ stitched (L, P); `soft` the share of attention on
    soft rows (L,).
    """

    method: str
    off: Tensor
    full: Tensor
    stitched: Tensor
    soft: Tensor

    @property
    def deviation(self) -> Tensor:
        """(L, P)."""
        return self.off / self.full

    @property
    def density(self) -> Tensor:
        """(L, P)."""
        return self.stitched / self.full

    def over(self, layers: slice, places: slice) -> tuple[float, float]:
        """Deviation and density ratio over some layers and places together."""
        off, full, stitched = (sums[layers, places].sum() for sums in (self.off, self.full, self.stitched))
        return float(off / full), float(stitched / full)


@torch.no_grad()
def diagnose(
    engine: Engine,
    examples: Sequence[Example],
    methods: Sequence[str],
    tell: Callable[[int], None] = lambda done: None,
) -> list[Deviations]:
    """Compare methods with full prefill over some examples; `tell` hears how many are done. Text methods only."""
    chosen = {spelling: engine.method(spelling) for spelling in methods}
    for spelling, method in chosen.items():
        if method.shows_pages or method.write is None:
            raise MethodError(f"{spelling}: only methods that reuse documents shown as text are compared")
    if not examples:
        raise TrainingError("there is no example to compare methods on: give one or more")
    layers = engine.backbone.shape[0]
    sums = {spelling: torch.zeros(4, layers, len(PLACES)) for spelling in methods}
    for number, example in enumerate(examples):
        tell(number)
        whole, full = _attention(engine, example, "full")
        for spelling in methods:
            layout, stitched = _attention(engine, example, spelling)
            sums[spelling] += _compared(whole, full, layout, stitched)
    return [
        Deviations(name, found[0], found[1], found[2], found[3, :, 0] / len(examples)) for name, found in sums.items()
    ]


def _attention(engine: Engine, example: Example, method: str) -> tuple[Layout, Tensor]:
    """A request's layout, and the attention (L, T) of its last segment on every row."""
    documents = [Document(text_digest(text), text) for text in example.documents]
    for document in documents:
        engine.add(document)
    before = [example.before] if example.before else []
    message = Message("user", [*before, *(Doc(document.id) for document in documents), example.question])
    chat = engine.chat(method=method)
    chat.ask([message], sampling=Sampling(max_tokens=0))
    assert chat.turn is not None
    assert chat.context is not None
    return chat.turn.layout, question_attention(engine.backbone, chat.context, chat.turn.layout)


def question_attention(backbone: Backbone, context: Context, layout: Layout) -> Tensor:
    """How much the last segment's rows look at every row, mean over heads and its rows: (L, T), float32.

    They are read once more, into the same rows of the context.
    """
    last, device = layout.segments[-1], context.device
    queries: list[Tensor] = []
    inputs = backbone.embed(last.ids[None].to(device))
    read(backbone, context, inputs, last.rows, last.positions[:, None].to(device), notes=Notes(queries=queries))
    seen = torch.arange(layout.rows) <= torch.arange(last.rows.start, last.rows.stop)[:, None]  # (R, T)
    return torch.stack(
        [
            mean_attention(query[0], context.keys[i][0, :, : layout.rows], backbone.scaling(i), seen.to(device)).cpu()
            for i, query in enumerate(queries)
        ]
    )


def _compared(whole: Layout, full: Tensor, layout: Layout, stitched: Tensor) -> Tensor:
    """Sums (4, L, P) of |stitched − full|, full and stitched by place, and of attention on soft rows at place 0."""
    sums = torch.zeros(4, full.shape[0], len(PLACES))
    for expected, segment in zip(whole.chunks, layout.chunks, strict=True):
        real = segment.ids >= 0
        found = stitched[:, segment.rows]
        a, b = full[:, expected.rows], found[:, real]  # (L, T) each, of the same tokens
        places = place_numbers(expected)
        for number, values in enumerate(((b - a).abs(), a, b)):
            sums[number].index_add_(1, places, values)
        sums[3, :, 0] += found[:, ~real].sum(dim=1)
    return sums


def place_numbers(segment: Segment) -> Tensor:
    """Of each row (T,) of a document, the number of its place; in one shorter than both edges, the nearer edge's."""
    rows = segment.ids.shape[0]
    first, last = torch.arange(rows), torch.arange(rows).flip(0)
    places = torch.full((rows,), EDGE)
    at_end, at_start = last < EDGE, (first < EDGE) & (first <= last)
    places[at_end] = len(PLACES) - 1 - last[at_end]
    places[at_start] = first[at_start]
    return places
