"""Which layers tell best what matters: a model's profile, measured on a user's own documents and questions.

How QCFuse's critical layers were found is not published. Here a layer is as good as its probe's choice of rows agrees
with what the question looks at under full prefill, in all layers together.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from torch import Tensor

from kvbind.methods import Method
from kvbind.methods.selectors import largest, share_of
from kvbind.steps.fetch import fetch
from kvbind.steps.layout import Layout, lay_out
from kvbind.steps.library import Library
from kvbind.steps.plan import Message, make_plan
from kvbind.steps.probe import mean_attention, probe_layers
from kvbind.steps.read import Notes, embed_segments, read
from kvbind.steps.stitch import Stitched, stitch


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
    """Measure every layer on some requests with `method`'s probe; `progress` is told how many requests are done."""
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
    passages, _ = fetch(library, plan.choices, method)
    pieces = library.backbone.chat.split(plan.turns)
    layout = lay_out(library.backbone, pieces, plan.fill(passages))
    context = library.backbone.context(layout.rows)
    heads = layout.of_kind("head")
    stitch(library.backbone, context, layout, library.head(heads[0].ids) if heads else None, passages)
    request = Stitched(layout, context, plan.choices, passages)
    rows = torch.cat([torch.arange(segment.rows.start, segment.rows.stop) for segment in layout.chunks])
    encodings = [library.encode(choice.chunk, choice.representation) for choice in plan.choices]
    whole = lay_out(library.backbone, pieces, plan.fill(encodings))
    truth = attention_under_full_prefill(library, whole)[rows]
    count = share_of(len(rows), ratio)
    wanted = set(largest(truth, count).tolist())
    scores = probe_layers(library, _every_layer(library, method), request, range(library.backbone.shape[0]))
    return [len(wanted & set(largest(score[rows], count).tolist())) / max(count, 1) for score in scores]


def _every_layer(library: Library, method: Method) -> Method:
    """The method with its probe run through all layers."""
    assert method.selector is not None
    assert method.selector.probe is not None
    probe = replace(method.selector.probe, layers=(library.backbone.shape[0] - 1,))
    return replace(method, selector=replace(method.selector, probe=probe))


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
