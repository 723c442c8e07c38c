"""What planning, compiling and fetching share: a model, a bank, an embedder, and how chunks become passages."""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from kvbind.bank import Bank, checked_text, content_key
from kvbind.errors import BankError, DocumentError, PromptTooLongError, RenderError
from kvbind.methods import Write
from kvbind.models import Backbone, Writer, line, load_writer
from kvbind.models.identity import json_digest
from kvbind.relevance import Embedder
from kvbind.render import Renderer
from kvbind.steps.cost import Speeds
from kvbind.steps.write import frame_ids, write_passages
from kvbind.types import (
    KV,
    Chunk,
    Document,
    Encoding,
    Page,
    PageSpec,
    Passage,
    Representation,
    StackedKV,
    Text,
    text_digest,
)

HEADS_KEPT = 16


@dataclass
class Library:
    """A model's view of a bank."""

    backbone: Backbone
    bank: Bank
    embedder: Embedder
    renderers: dict[PageSpec, Renderer] = field(default_factory=dict)
    heads: OrderedDict[tuple[int, ...], KV] = field(default_factory=OrderedDict)
    frames: dict[tuple[Write, bool], list[int]] = field(default_factory=dict)
    speeds: Speeds = field(init=False)
    companions_made: int = 0
    _documents: tuple[list[tuple[str, str]], list[str], Tensor] | None = None
    _registered: bool = False

    def __post_init__(self) -> None:
        self.speeds = Speeds.read(self.backbone, self.bank.get_setting(self._speeds_name, {}))

    @property
    def _speeds_name(self) -> str:
        return f"speeds of {self._model} on {self.backbone.device}"

    def keep_speeds(self) -> None:
        """Note in the bank how fast model and bank were, for requests to come; a request does not fail of that."""
        with suppress(BankError):
            self.bank.set_setting(self._speeds_name, self.speeds.plain())

    def renderer(self, spec: PageSpec) -> Renderer:
        """The renderer of a page spec, its font loaded once."""
        if spec not in self.renderers:
            self.renderers[spec] = Renderer(spec)
        return self.renderers[spec]

    def chunks(self, document: Document, representation: Representation) -> list[Chunk]:
        """A document's chunks: the whole text, or one chunk a page. Page breaks are found once and kept in the bank."""
        digest = document.digest  # hashes the whole text: once, not once a page
        if isinstance(representation, Text):
            return [Chunk(document.id, 0, document.text, document_digest=digest)]
        renderer = self.renderer(representation.spec)
        lengths = self.bank.page_lengths(digest, renderer.digest)
        if lengths is None:
            try:
                lengths = [len(page) for page in renderer.paginate(document.text)]
            except RenderError as error:
                raise RenderError(f"document {document.id}: {error}") from error
            self.bank.put_page_lengths(digest, renderer.digest, lengths)
        ends = list(accumulate(lengths))
        return [
            Chunk(document.id, number, document.text[end - length : end], end == ends[-1], digest)
            for number, (length, end) in enumerate(zip(lengths, ends, strict=True))
        ]

    def check(self, document: Document, representations: Sequence[Representation]) -> None:
        """Raise before anything is stored if a document cannot be compiled: too long, or nothing to draw."""
        checked_text(document)
        for representation in representations:
            if isinstance(representation, Text):
                self.check_span(document.id, len(self.backbone.tokens(document.text + representation.ending)))
            else:
                self.chunks(document, representation)

    def check_span(self, document_id: str, span: int) -> None:
        """PromptTooLongError if a chunk alone takes more positions than the model has."""
        if span > self.backbone.window:
            raise PromptTooLongError(
                f"document {document_id} takes {span} positions, the model's window is {self.backbone.window}: split "
                "the document, or show it as pages to a vision model"
            )

    def key(self, chunk: Chunk, representation: Representation, write: Write) -> str:
        """The content key of a passage: SHA-256 over everything its numbers depend on.

        A page enters by its text, spec, font bytes and renderer, of which its pixels are a function: nothing needs to
        be drawn to find it.
        """
        facts: dict[str, Any] = {
            "model": self.backbone.facts,
            "write": [write.label, self.frame(write, representation)],
            "text": text_digest(chunk.text),
        }
        if write.writer is not None:
            facts["writer"] = write.writer.digest
        if isinstance(representation, Page):
            facts["page"] = [representation.dpi, self.renderer(representation.spec).digest, chunk.last]
        else:
            facts["ending"] = representation.ending
        return content_key(facts)

    def frame(self, write: Write, representation: Representation) -> list[int]:
        """The token ids before a chunk while it is compiled."""
        page = isinstance(representation, Page) and self.backbone.reads_pages
        if (write, page) not in self.frames:
            self.frames[write, page] = frame_ids(self.backbone, write, page=page)
        return self.frames[write, page]

    def writer(self, write: Write) -> Writer | None:
        """The trained writer that compiles, loaded when first needed; ModelError if it is not this model's."""
        return None if write.writer is None else load_writer(self.backbone, write.writer)

    def encode(self, chunk: Chunk, representation: Representation) -> Encoding:
        """A chunk as the model will see it; pages are drawn here."""
        if isinstance(representation, Text):
            return self.backbone.encode_text(chunk.text + representation.ending)
        image = self.renderer(representation.spec).draw(chunk.text, representation.dpi, last=chunk.last)
        return self.backbone.encode_page(image)

    def head(self, ids: Tensor) -> KV:
        """Keys and values of a request's head, computed once per head and kept; the native heads also in the bank."""
        name = tuple(ids.tolist())
        if name not in self.heads:
            self.heads[name] = self._native_head(ids) if self._is_native(name) else self._compute_head(ids)
            if len(self.heads) > HEADS_KEPT:
                self.heads.popitem(last=False)
        self.heads.move_to_end(name)
        return self.heads[name]

    def _is_native(self, name: tuple[int, ...]) -> bool:
        template = Write("template")
        return any(name == tuple(self.frame(template, shown)) for shown in (Text(), Page(72)))

    def _native_head(self, ids: Tensor) -> KV:
        key = content_key({"model": self.backbone.facts, "head": ids.tolist()})
        stored = self.bank.get(key)
        if stored is not None:
            return _on_device(stored.kv, self.backbone.device)
        kv, axes = self._compute_head(ids), self.backbone.family.axes
        self.bank.put_head(Passage(key, ids, line(0, len(ids), axes), len(ids), 0, kv))
        return kv

    def _compute_head(self, ids: Tensor) -> KV:
        encoding = Encoding(ids, line(0, len(ids), self.backbone.family.axes), len(ids))
        return write_passages(self.backbone, [encoding], [])[0]

    def vectors(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors (N, d) of one or more texts, embedded once and kept in the bank."""
        known = self.bank.vectors(texts, self.embedder.identity)
        missing = sorted({text for text, vector in zip(texts, known, strict=True) if vector is None})
        if missing:
            made = self.embedder.embed(missing)  # (M, d)
            self.bank.put_vectors(missing, self.embedder.identity, made)
            by_text = dict(zip(missing, made, strict=True))
            known = [by_text[text] if vector is None else vector for text, vector in zip(texts, known, strict=True)]
        return torch.stack([vector for vector in known if vector is not None])

    def document_vectors(self) -> tuple[list[str], Tensor]:
        """Ids and unit vectors (N, d) of all documents, kept while the bank stays as it is; DocumentError if empty."""
        known = self.bank.document_digests()
        if not known:
            raise DocumentError("the bank holds no documents: compile some first")
        if self._documents is None or self._documents[0] != known:
            _, _, lacking = self.bank.document_vectors(self.embedder.identity)
            if lacking:
                self.vectors([self.bank.document(identifier).text for identifier in lacking])
            ids, vectors, _ = self.bank.document_vectors(self.embedder.identity)
            assert vectors is not None
            self._documents = known, ids, vectors
        return self._documents[1], self._documents[2]

    @property
    def ranked_layers(self) -> list[int]:
        """The model's layers, those first whose attention best tells which rows matter; empty if it has no profile."""
        ranking: list[int] = self.bank.get_setting(self.profile_name, {}).get("ranking", [])
        return ranking

    @property
    def profile_name(self) -> str:
        """The bank's setting that holds this model's profile."""
        return f"layers of {self._model}"

    def register(self, source: str) -> None:
        """Note in the bank that it holds passages of this model."""
        if not self._registered:
            self.bank.add_model(self._model, {"source": source, **self.backbone.facts})
            self._registered = True

    def check_model(self, source: str) -> None:
        """BankError if the bank holds passages, but none of this very model: its weights, template and the rest."""
        models = self.bank.models()
        if not models or self._model in models:
            return
        nearest = min(models.values(), key=lambda facts: len(self._differences(facts)))
        raise BankError(
            f"the bank was compiled for another model than {source} (other {', '.join(self._differences(nearest))}); "
            f"compile with this model first, or ask with {nearest['source']}"
        )

    @property
    def _model(self) -> str:
        return json_digest(self.backbone.facts)

    def _differences(self, facts: dict[str, Any]) -> list[str]:
        return [name for name, value in self.backbone.facts.items() if facts.get(name) != value]


def _on_device(kv: KV, device: torch.device) -> KV:
    if not isinstance(kv, StackedKV):
        return kv
    return StackedKV(kv.keys.to(device), kv.values.to(device))
