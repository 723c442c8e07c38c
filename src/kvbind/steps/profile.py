"""Which layers tell best what matters: a model's profile, measured on a user's own documents and questions.

How QCFuse's critical layers were found is not published. Here a layer is as good as its probe's choice of rows agrees
with what the question looks at under full prefill, in all layers together.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from kvbind.errors import MethodError, PromptTooLongError
from kvbind.methods import Method
from kvbind.methods.selectors import largest, share_of
from kvbind.models.chat import Piece
from kvbind.steps.companions import make_anchors
from kvbind.steps.fetch import fetch
from kvbind.steps.layout import Layout, lay_out
from kvbind.steps.library import Library
from kvbind.steps.plan import Message, Plan, make_plan
from kvbind.steps.probe import looked_at, mean_attention, probe_of, probe_question
from kvbind.steps.read import Notes, embed_segments, read
from kvbind.steps.stitch import Stitched, stitch
from kvbind.types import Passage


@dataclass(frozen=True)
class LayerProfile:
    """How well each layer's probe agrees with full prefill: the share of the rows that matter which it finds too.

    `ratio` of all document rows were taken to matter, which is also the agreement of chance. `ranking`: the layers, the
    best first.
    """

    agreement: tuple[float, ...]
    ratio: float
    questions: int

    @property
    def ranking(self) -> list[int]:
        """The layers, the best first; of equal ones the earlier, which is cheaper to reach."""
        return sorted(range(len(self.agreement)), key=lambda layer: -self.agreement[layer])


@torch.no_grad()
def profile_layers(
    library: Library,
    method: Method,
    requests: Sequence[Sequence[Message]],
    ratio: float,
    progress: Callable[[int], None] | None = None,
) -> LayerProfile:
    """Measure every layer on some requests with `method`'s probe; `progress` is told how many requests are done.

    Passages that the bank lacks are compiled and kept, anchors are not. Raises MethodError unless 0 < ratio < 1, and
    PromptTooLongError.
    """
    if not 0 < ratio < 1:
        raise MethodError(f"ratio={ratio:g}: give the share of rows that matter, more than 0 and less than 1")
    found = []
    for number, messages in enumerate(requests, 1):
        found.append(_agreements(library, method, messages, ratio))
        if progress is not None:
            progress(number)
    means = torch.tensor(found).mean(dim=0)
    return LayerProfile(tuple(means.tolist()), ratio, len(requests))


def keep_profile(library: Library, profile: LayerProfile) -> None:
    """Note a profile in the bank, beside the model's identity: qcfuse uses it from then on."""
    library.bank.set_setting(library.profile_name, {**asdict(profile), "ranking": profile.ranking})


def _agreements(library: Library, method: Method, messages: Sequence[Message], ratio: float) -> list[float]:
    """For one request, each layer's share (L,) of the rows that matter."""
    plan = make_plan(library, messages, method)
    pieces = library.backbone.chat.split(plan.turns)
    request = _stitched(library, method, plan, pieces)
    encodings = [library.encode(choice.chunk, choice.representation) for choice in plan.choices]
    whole = lay_out(library.backbone, pieces, plan.fill(encodings))
    truth = attention_under_full_prefill(library, whole)[request.rows]
    count = max(1, share_of(len(truth), ratio))
    wanted = set(largest(truth, count).tolist())
    scores = layer_scores(library, method, request)
    return [len(wanted & set(largest(score, count).tolist())) / count for score in scores]


def _stitched(library: Library, method: Method, plan: Plan, pieces: Sequence[Piece]) -> Stitched:
    """A request as its method would have it before anything is repaired."""
    backbone = library.backbone
    passages, _ = fetch(library, plan.choices, method)
    layout = lay_out(backbone, pieces, plan.fill(passages))
    if layout.end > backbone.window:
        raise PromptTooLongError(
            f"a question's prompt takes {layout.end} positions, the model's window is {backbone.window}: profile over "
            "fewer or shorter documents"
        )
    context, heads = backbone.context(layout.rows), layout.of_kind("head")
    stitch(backbone, context, layout, library.head(heads[0].ids) if heads else None, passages)
    return Stitched(layout, context, plan.choices, passages)


def layer_scores(library: Library, method: Method, request: Stitched) -> list[Tensor]:
    """For each layer, how much the question looks at every row of the passages (N,), as `method` would probe it there.

    Every layer has its own anchors, those of a request with this critical layer alone: by key norm they are scored,
    and the question is read, at that layer. Repeating a passage scores its rows for all layers alike: one reading of
    the question then serves all of them. Anchors are not kept.
    """
    depth = library.backbone.shape[0]
    if probe_of(method).anchors == "repeat":
        queries = probe_question(library.backbone, request, _anchors(library, method, request, depth - 1), depth)
    else:
        queries = [
            probe_question(library.backbone, request, _anchors(library, method, request, layer), layer + 1)[layer]
            for layer in range(depth)
        ]
    return [looked_at(library.backbone, request, query, layer) for layer, query in enumerate(queries)]


def _anchors(library: Library, method: Method, request: Stitched, layer: int) -> list[Passage]:
    """The anchors of each passage for one critical layer; they are not kept."""
    assert method.write is not None
    write, probe = method.write, probe_of(method)
    pairs = zip(request.choices, request.passages, strict=True)
    return [make_anchors(library, choice, whole, write, probe, (layer,)) for choice, whole in pairs]


def attention_under_full_prefill(library: Library, layout: Layout) -> Tensor:
    """How much the question's rows look at every row (T,), nothing reused: mean over layers, heads and its rows."""
    backbone, question = library.backbone, layout.segments[-1].rows
    context = backbone.context(layout.rows)
    rows = context.extend(layout.rows)
    notes = Notes(queries=[])
    inputs = embed_segments(backbone, layout.segments, layout.ids[None].to(backbone.device))
    read(backbone, context, inputs, rows, layout.positions[:, None].to(backbone.device), notes=notes)
    seen = torch.arange(layout.rows) <= torch.arange(question.start, question.stop)[:, None]  # (R, T)
    total = torch.zeros(layout.rows)
    for layer, query in enumerate(notes.queries or ()):
        keys = context.keys[layer][0, :, : layout.rows]
        total += mean_attention(query[0, :, question], keys, backbone.scaling(layer), seen.to(keys.device)).cpu()
    return total / backbone.shape[0]
