"""The engine: compile documents once, ask over any selection of them in any order."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from kvbind.answer import Answer
from kvbind.bank import Bank
from kvbind.builtin import locate, page_spec
from kvbind.chat import Chat
from kvbind.errors import MethodError, ModelError
from kvbind.methods import Method, parse_method
from kvbind.models import Backbone, check_writer, load_backbone
from kvbind.relevance import Embedder, make_embedder, rank
from kvbind.steps.compile import CompileReport, compile_documents
from kvbind.steps.decode import Sampling
from kvbind.steps.library import Library
from kvbind.steps.plan import Message
from kvbind.steps.profile import LayerProfile, keep_profile, profile_layers
from kvbind.types import Doc, Document, PageSpec

MethodLike = str | Method
TOP_K = 5


class Engine:
    """A model, a bank of compiled documents, and an embedder.

    `source` names the model in messages and in the bank; `page` is how methods given by name draw their pages. With
    `weigh`, methods that repair compute everything where that is expected to be faster than loading and repairing.
    """

    def __init__(
        self,
        backbone: Backbone,
        bank: Bank | None = None,
        *,
        embedder: Embedder | str = "lexical",
        page: PageSpec | None = None,
        source: str = "this model",
        weigh: bool = True,
    ) -> None:
        made = make_embedder(embedder) if isinstance(embedder, str) else embedder
        self.library = Library(backbone, bank or Bank.memory(), made)
        self.page = page or PageSpec()
        self.source, self.weigh = source, weigh

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        bank: Bank | str | Path | None = None,
        device: str = "cpu",
        dtype: str | torch.dtype = "auto",
        embedder: Embedder | str = "lexical",
        page: PageSpec | None = None,
        template_options: dict[str, Any] | None = None,
        weigh: bool = True,
    ) -> "Engine":
        """Load a model: "pocket" (the built-in one), a folder or a hub id.

        Without a bank (or its folder), passages stay in memory. `page` is how pages are drawn: by default as the
        model's folder says in `kvbind.json`, else after Glyph's protocol. `template_options` are handed to the chat
        template (thinking is off and dates are fixed by default). Raises ModelError, UnsupportedModelError, BankError
        or EmbedderError.
        """
        folder = locate(model)
        spec = page or page_spec(folder)
        backbone = load_backbone(folder, device=device, dtype=dtype, template_options=template_options)
        opened = Bank.open(bank) if isinstance(bank, str | Path) else bank
        return cls(backbone, opened, embedder=embedder, page=spec, source=str(model), weigh=weigh)

    @property
    def bank(self) -> Bank:
        """Where passages and documents are kept."""
        return self.library.bank

    @property
    def backbone(self) -> Backbone:
        """The model."""
        return self.library.backbone

    def method(self, spelling: MethodLike) -> Method:
        """A method from its spelling, drawing pages to this engine's page spec.

        Raises MethodError, and ModelError for pages on a model that reads text only, or another model's writer.
        """
        method = parse_method(spelling, self.page) if isinstance(spelling, str) else spelling
        if method.shows_pages and not self.backbone.reads_pages:
            raise ModelError(
                f"{method.name} shows page images, and {self.source} ({self.backbone.family.model_type}) reads text "
                "only: choose a text method, such as template, or a vision model"
            )
        if method.write is not None and method.write.writer is not None:
            check_writer(self.backbone, method.write.writer)
        return method

    @torch.no_grad()
    def compile(
        self,
        documents: Iterable[Document],
        method: MethodLike = "template",
        *,
        progress: Callable[[CompileReport], None] | None = None,
    ) -> CompileReport:
        """Compile what a method needs of the documents; what the bank has already is skipped.

        Interrupt it at any time: every passage stored so far is whole, and the next call goes on from there.
        """
        chosen = self.method(method)
        self.library.register(self.source)
        return compile_documents(self.library, documents, chosen, progress)

    def ask(
        self,
        question: str | Sequence[Message],
        documents: Sequence[str | Document] | None = None,
        *,
        method: MethodLike = "template",
        system: str | None = None,
        query: str | None = None,
        raw: bool = False,
        top_k: int = TOP_K,
        sampling: Sampling | None = None,
        explain: bool = False,
        on_text: Callable[[str], None] | None = None,
    ) -> Answer:
        """Answer a question over documents, given by id, as Document, or (None) the `top_k` most relevant.

        Instead of a question, whole messages may be given, with `Doc(id)` anywhere in them. `query` is what relevance
        is measured against, where that is not the question itself; `raw` leaves the chat template out. `on_text`
        receives the answer as it grows; `explain` adds relevance and attention to the answer's sources.
        """
        chat = self.chat(method=method, system=system, raw=raw)
        return chat.ask(
            question, documents, query=query, top_k=top_k, sampling=sampling, explain=explain, on_text=on_text
        )

    def chat(self, *, method: MethodLike = "template", system: str | None = None, raw: bool = False) -> Chat:
        """A conversation over one context: each turn computes only what is new in it.

        `raw` leaves the chat template out: such a conversation has one turn.
        """
        self.library.check_model(self.source)
        return Chat(self.library, self.method(method), system, self.retrieve, self.add, raw=raw, weigh=self.weigh)

    def profile_layers(
        self,
        questions: Sequence[str],
        *,
        method: MethodLike = "qcfuse",
        ratio: float = 0.3,
        top_k: int = TOP_K,
        progress: Callable[[int], None] | None = None,
    ) -> LayerProfile:
        """Find the layers whose attention best tells which rows matter, and keep that in the bank for qcfuse.

        Each question is read over the `top_k` documents most relevant to it, once whole and once by `method`'s probe.
        Raises MethodError if the method has no probe, without questions, and unless 0 < `ratio` < 1, the share of rows
        that is taken to matter; PromptTooLongError as asking does.
        """
        chosen = self.method(method)
        if chosen.selector is None or chosen.selector.probe is None:
            raise MethodError(f"{chosen.name} looks at no layer in particular: profile with qcfuse or qcfuse-view")
        if not questions:
            raise MethodError("there are no questions to profile with: give some, one per line")
        self.library.check_model(self.source)
        requests = [[Message("user", [*self.retrieve(question, top_k), question])] for question in questions]
        profile = profile_layers(self.library, chosen, requests, ratio, progress)
        keep_profile(self.library, profile)
        return profile

    def add(self, document: Document) -> None:
        """Put a document into the bank; another text under the same id is a new version, and the old one is gone."""
        self.library.register(self.source)
        self.bank.put_document(document)

    @torch.no_grad()
    def retrieve(self, question: str, top_k: int = TOP_K) -> list[Doc]:
        """The `top_k` documents most relevant to a question, most relevant first."""
        ids, vectors = self.library.document_vectors()
        order = rank(self.library.embedder.embed([question])[0], vectors)
        return [Doc(ids[number]) for number, _ in order[:top_k]]
