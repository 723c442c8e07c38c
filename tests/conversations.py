"""Requests for the laws: documents as text or pages, anywhere in a conversation, over any backbone."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbind import Bank, Doc, Document, Message, Method, PageSpec, parse_method
from kvbind.models import Backbone, Context
from kvbind.relevance import LexicalEmbedder
from kvbind.steps.fetch import fetch
from kvbind.steps.layout import Layout, lay_out
from kvbind.steps.library import Library
from kvbind.steps.plan import make_plan
from kvbind.steps.read import embed_segments, read, read_fresh
from kvbind.steps.stitch import stitch
from kvbind.types import Passage
from tiny import TEXT, VISION

DOCUMENTS = (
    Document(
        "pier",
        "The lighthouse at the end of the pier was built in 1874. Its keeper was Margaret Ellis. Every evening she "
        "climbed the steps, trimmed the lamp, and wrote the weather into a book.\n\nThe book is in the museum. It has "
        "ninety-six pages, and nobody knows who took it there, or when. The dogs are on the cover.",
    ),
    Document("storm", "The storm arrived on a Tuesday; the harbour master saw it first, at 4:15."),
    Document("dogs", "She lived there with two dogs."),
)
QUESTION = "Who saw the storm first?"
CARD = PageSpec(width=220, height=160)  # small pages, for small vision towers
SHOWN = [(name, 0) for name in TEXT] + [(name, dpi) for name in VISION for dpi in (0, 72)]
SIMPLE = [Message("user", [Doc("pier"), Doc("storm"), Doc("dogs"), QUESTION])]
# Text before, between and after documents: most rows that are computed do not stand at the end.
SCATTERED = [
    Message("user", [Doc("storm"), "Remember this. ", Doc("pier"), "And this: ", Doc("dogs"), QUESTION]),
]


@dataclass(frozen=True)
class Request:
    """A planned request: its layout, the passages of its parts, and the context they were stitched into."""

    library: Library
    layout: Layout
    passages: Sequence[Passage] = ()
    context: Context | None = None


def library(backbone: Backbone) -> Library:
    made = Library(backbone, Bank.memory(), LexicalEmbedder())
    for document in DOCUMENTS:
        made.bank.put_document(document)
    return made


def spelled(name: str, dpi: int) -> Method:
    return parse_method(name + (f"{',' if ':' in name else ':'}dpi={dpi}" if dpi else ""), CARD)


def full_request(lib: Library, messages: Sequence[Message], dpi: int) -> Request:
    """Everything fresh: every row of every document is to be computed."""
    plan = make_plan(lib, messages, spelled("full", dpi))
    encodings = [lib.encode(choice.chunk, choice.representation) for choice in plan.choices]
    return Request(lib, lay_out(lib.backbone, lib.backbone.chat.split(plan.turns), plan.fill(encodings)))


def reuse_request(lib: Library, messages: Sequence[Message], method: Method) -> Request:
    """Documents from the bank, stitched; fresh rows are still to be computed."""
    plan = make_plan(lib, messages, method)
    passages, _ = fetch(lib, plan.choices, method)
    layout = lay_out(lib.backbone, lib.backbone.chat.split(plan.turns), plan.fill(passages))
    context = lib.backbone.context(layout.rows)
    heads = layout.of_kind("head")
    stitch(lib.backbone, context, layout, lib.head(heads[0].ids) if heads else None, passages)
    return Request(lib, layout, passages, context)


def answer_logits(request: Request) -> Tensor:
    """Logits (V,) of the last row, by reading the fresh rows of a stitched request."""
    assert request.context is not None
    return read_fresh(request.library.backbone, request.context, request.layout)


def read_everything(request: Request) -> tuple[Tensor, Context]:
    """Logits (T, V) of all rows by the loop, nothing reused."""
    backbone, layout = request.library.backbone, request.layout
    context = backbone.context(layout.rows)
    rows = context.extend(layout.rows)
    inputs = embed_segments(backbone, layout.segments, layout.ids[None])
    hidden = read(backbone, context, inputs, rows, layout.positions[:, None])
    return backbone.logits(hidden)[0], context


def native_logits(request: Request, mask: Tensor | None = None) -> Tensor:
    """Logits (T, V) of all rows by the model's own forward; `mask` (T, T) limits what each row sees."""
    backbone, layout = request.library.backbone, request.layout
    pages = [segment.encoding.pixels for segment in layout.segments if segment.encoding and segment.encoding.pixels]
    images = backbone.family.vision.native(pages) if pages and backbone.family.vision else {}
    if mask is not None:
        lowest = torch.finfo(backbone.dtype).min
        images["attention_mask"] = torch.zeros(mask.shape, dtype=backbone.dtype).masked_fill(~mask, lowest)[None, None]
    positions = layout.positions[:, None] if backbone.family.axes > 1 else layout.positions
    return backbone.model(input_ids=layout.ids[None], position_ids=positions, use_cache=False, **images).logits[0]


def isolated_mask(layout: Layout) -> Tensor:
    """What rows see when documents are compiled with nothing before them: (T, T), document rows only their own."""
    mask = torch.ones(layout.rows, layout.rows, dtype=torch.bool).tril()
    for segment in layout.segments:
        if segment.part is not None:
            mask[segment.rows, : segment.start] = False
    return mask
