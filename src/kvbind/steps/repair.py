"""Computing some reused rows anew: which ones a request may, which ones its method picks, and reading them."""

import torch
from torch import Tensor

from kvbind.methods import Method
from kvbind.methods.selectors import Repairable
from kvbind.models import Features, joined
from kvbind.steps.companions import visual_inputs
from kvbind.steps.layout import Layout, Segment
from kvbind.steps.library import Library
from kvbind.steps.plan import Choice
from kvbind.steps.probe import importance
from kvbind.steps.read import Narrowing, Repair
from kvbind.steps.stitch import Stitched


def repairable(library: Library, method: Method, request: Stitched) -> list[Repairable]:
    """The rows that may be computed anew: all but soft ones, and passages that are exact where they stand."""
    found = []
    for segment, choice in zip(request.segments, request.choices, strict=True):
        if _is_exact(library, method, request.layout, segment, choice):
            continue
        own = torch.arange(segment.rows.start, segment.rows.stop)[segment.ids >= 0]
        found.append(Repairable(choice.chunk.document_id, own))
    return found


def _is_exact(library: Library, method: Method, layout: Layout, segment: Segment, choice: Choice) -> bool:
    """Whether a passage stands right after the head under which it was compiled, as in full prefill."""
    assert method.write is not None
    first = layout.segments[0]
    before = first.ids.tolist() if first.kind == "head" and first.rows.stop == segment.start else []
    frame = library.frame(method.write, choice.representation)
    return method.write.is_plain and before == frame and segment.start == len(frame)


def choose_rows(library: Library, method: Method, request: Stitched) -> Repair:
    """What a method's selector picks for a request, probing the question first if it asks for that."""
    selector = method.selector
    assert selector is not None
    passages = repairable(library, method, request)
    scores = importance(library, method, request) if selector.probe is not None else None
    rows = selector.pick(passages, scores)
    image, features = _visual(library, method, request, rows)
    reused = torch.zeros(request.context.size, dtype=torch.bool)
    for passage in passages:
        reused[passage.rows] = True
    device = request.context.device
    total = sum(len(passage.rows) for passage in passages)
    narrowing = Narrowing(reused.to(device), total, selector.shares(request.context.layers), len(rows))
    return Repair(rows.to(device), image.to(device), features, narrowing)


def _visual(library: Library, method: Method, request: Stitched, rows: Tensor) -> tuple[Tensor, Features | None]:
    """Which of the rows (n,) come from page images, and the embeddings of those, in order."""
    assert method.write is not None
    picked = torch.zeros(request.context.size, dtype=torch.bool)
    picked[rows] = True
    image, parts = torch.zeros_like(picked), []
    for segment, choice in zip(request.segments, request.choices, strict=True):
        own = library.backbone.is_image(segment.ids)
        image[segment.rows] = own
        wanted = picked[segment.rows][own]  # of the page's visual tokens
        if wanted.any():
            parts.append(visual_inputs(library, choice, method.write).only(wanted))
    return image[rows], joined(parts) if parts else None
