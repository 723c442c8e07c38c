"""A conversation: one context, in which every turn fills only its own rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from kvbind.answer import Answer, State
from kvbind.errors import DamagedRecordError, MethodError, PromptTooLongError
from kvbind.methods import Method
from kvbind.models import Context
from kvbind.steps.clock import Stopwatch
from kvbind.steps.cost import Decision, Request, cost_name, decide
from kvbind.steps.decode import Sampling, decode
from kvbind.steps.evidence import attention_shares
from kvbind.steps.feed import Feed, Loading, placements
from kvbind.steps.fetch import fetch
from kvbind.steps.layout import Content, Layout, lay_out
from kvbind.steps.library import Library
from kvbind.steps.plan import Message, Plan, make_plan
from kvbind.steps.read import keep, prefill, read_fresh
from kvbind.steps.repair import choose_rows
from kvbind.steps.stitch import Stitched, stitch
from kvbind.turn import Turn, answer_of
from kvbind.types import Doc, Document, Page, Passage

# Room behind a prompt for an answer, so that decoding seldom has to grow the buffers.
ANSWER_ROWS = 256


class Chat:
    """Turns over one context; made by `Engine.chat`.

    With `raw` the prompt is the user's words and documents alone, without the model's chat template. With `weigh`, a
    repairing method computes everything where that is expected to be faster. `retrieve` finds documents where none are
    named, `add` puts a document into the bank. `turn` is the last turn, as it was planned and read.
    """

    def __init__(
        self,
        library: Library,
        method: Method,
        system: str | None,
        retrieve: Callable[[str, int], list[Doc]],
        add: Callable[[Document], None],
        *,
        raw: bool = False,
        weigh: bool = True,
    ) -> None:
        self.library, self.method, self.system = library, method, system
        self.raw, self.weigh = raw, weigh
        self.retrieve, self.add = retrieve, add
        self.context: Context | None = None
        self.pending: tuple[int, ...] = ()
        self.turn: Turn | None = None

    @torch.no_grad()
    def ask(
        self,
        question: str | Sequence[Message],
        documents: Sequence[str | Document] | None = None,
        *,
        query: str | None = None,
        top_k: int = 5,
        sampling: Sampling | None = None,
        explain: bool = False,
        on_text: Callable[[str], None] | None = None,
    ) -> Answer:
        """One turn; `documents` None means the most relevant ones at the first turn, and no new ones later.

        `query` is what relevance is measured against, where the question's own words are not it.
        """
        if self.raw and (self.system or self.context is not None):
            raise MethodError("a raw prompt has no template: it takes no system prompt, and no second turn")
        watch = Stopwatch(self.library.backbone.device)
        for document in documents or ():
            if isinstance(document, Document):
                self.library.check(document, self.method.representations)
                self.add(document)
        with self._whole_turn():
            with watch.step("plan"):
                messages = self._messages(question, documents, query, top_k)
                plan = make_plan(self.library, messages, self.method, query=query, relevance=explain)
            turn = self._compute(plan, watch) if self.method.write is None else self._reuse(plan, watch)
            assert self.context is not None
            with watch.step("decode"):
                generation = decode(self.library.backbone, self.context, turn.logits, sampling or Sampling(), on_text)
            shares = attention_shares(self.library.backbone, self.context, turn.layout) if explain else None
        self.pending, self.turn = generation.pending, turn
        if self.method.selector is not None:
            self.library.keep_speeds()
        answer = answer_of(self.method, turn, generation, watch, shares)
        missing = self._undrawable(turn)
        return replace(answer, missing_characters=missing, decision=turn.decision, loading=turn.loading)

    @contextmanager
    def _whole_turn(self) -> Iterator[None]:
        """A turn that fails or is interrupted leaves the conversation as it was before."""
        before = None if self.context is None else (self.context.size, self.context.position)
        try:
            yield
        except BaseException:
            self._return_to(before)
            raise

    def _return_to(self, before: tuple[int, int] | None) -> None:
        if before is None or self.context is None:
            self.context = None
        else:
            self.context.truncate(*before)

    def _messages(
        self,
        question: str | Sequence[Message],
        documents: Sequence[str | Document] | None,
        query: str | None,
        top_k: int,
    ) -> list[Message]:
        first = self.context is None
        if not isinstance(question, str):
            return self._given(question, documents)
        if not question.strip():
            raise MethodError("the question is empty: ask something")
        if isinstance(documents, str):
            raise MethodError(f"documents={documents!r}: give a list of ids, [{documents!r}]")
        if documents is None:
            docs = self.retrieve(query or question, top_k) if first else []
        else:
            docs = [Doc(document if isinstance(document, str) else document.id) for document in documents]
        return self._with_system([Message("user", [*docs, question])])

    def _given(self, messages: Sequence[Message], documents: Sequence[str | Document] | None) -> list[Message]:
        if documents is not None or self.context is not None:
            raise MethodError("messages hold their own documents and start a conversation: give one or the other")
        if not messages or messages[-1].role != "user":
            raise MethodError("the last message must be the user's: add one to ask with")
        if self.system and any(message.role == "system" for message in messages):
            raise MethodError("there are two system prompts, system= and a message's: give one of them")
        return self._with_system(messages)

    def _with_system(self, messages: Sequence[Message]) -> list[Message]:
        if self.system and self.context is None:
            return [Message("system", self.system), *messages]
        return list(messages)

    def _reuse(self, plan: Plan, watch: Stopwatch) -> Turn:
        """Passages from the bank, stitched; only what is new in this turn is computed, and what the method repairs."""
        before = None if self.context is None else (self.context.size, self.context.position)
        compiled: set[str] = set()
        # On a CPU, where the thread that reads takes time from the one that computes, only repair is worth it.
        lazily = self.method.selector is not None or self.library.backbone.device.type != "cpu"
        try:
            return self._use_passages(plan, watch, compiled, lazily=lazily)
        except DamagedRecordError:
            self._return_to(before)
        # Met while it was read layer by layer. Read whole, it is put aside, and its chunk compiled again.
        return self._use_passages(plan, watch, compiled, lazily=False, retried=True)

    def _use_passages(
        self, plan: Plan, watch: Stopwatch, compiled: set[str], *, lazily: bool, retried: bool = False
    ) -> Turn:
        library = self.library
        with watch.step("fetch"):
            passages, hits = fetch(library, plan.choices, self.method, lazily=lazily)
            compiled.update(choice.key for choice, hit in zip(plan.choices, hits, strict=True) if not hit)
        with watch.step("stitch"):
            layout = self._lay_out(plan, passages)
            decision = self._weighed(layout, passages)
        if not decision.reuse:
            return replace(self._compute(plan, watch), decision=decision.reason)
        with watch.step("stitch"):
            context = self._context(layout.rows)
            heads = layout.of_kind("head")
            head = library.head(heads[0].ids) if heads else None
            stitch(library.backbone, context, layout, head, passages)
        request, made = Stitched(layout, context, plan.choices, passages), library.companions_made
        with Feed(library.backbone, context, placements(library, request)) as feed:
            repair = None
            if self.method.selector is not None and passages:
                with watch.step("select"):
                    repair = choose_rows(library, self.method, request)
            with watch.step("read"):
                logits = read_fresh(library.backbone, context, layout, source=feed, repair=repair)
        repaired = 0.0 if repair is None else repair.mean_rows
        if not retried and not compiled and library.companions_made == made:
            self._measured(layout, watch, feed.loading, repaired)
        states: list[State] = ["compiled now" if choice.key in compiled else "hit" for choice in plan.choices]
        return Turn(plan, layout, states, logits, decision.reason, repaired, feed.loading)

    def _weighed(self, layout: Layout, passages: Sequence[Passage]) -> Decision:
        """Whether to use the passages. Pages are always used: to compute them they would have to be drawn first."""
        if not self.weigh or self.method.selector is None or self.method.shows_pages or not passages:
            return Decision(True, "")
        unread = self.library.backbone.row_bytes * sum(p.rows for p in passages if not p.in_memory)
        request = Request(layout.segments[0].start, layout.rows, layout.count("fresh"), layout.count("passage"), unread)
        return decide(self.library.speeds, cost_name(self.method), request)

    def _measured(self, layout: Layout, watch: Stopwatch, loading: Loading, repaired: float) -> None:
        """Keep what a turn that had everything at hand tells about the speed of model and bank."""
        speeds, size = self.library.speeds, layout.segments[0].start + layout.rows
        speeds.saw_pass(layout.count("fresh") + repaired, size, watch.seconds["read"] - loading.waited)
        speeds.saw_reuse(cost_name(self.method), watch.seconds, layout.count("passage"), repaired)
        if loading.seconds:
            speeds.store.add(loading.bytes / loading.seconds)

    def _compute(self, plan: Plan, watch: Stopwatch) -> Turn:
        """Nothing reused: the first turn by the model's own forward, later ones over what that left."""
        backbone = self.library.backbone
        with watch.step("prepare"):
            encodings = [self.library.encode(choice.chunk, choice.representation) for choice in plan.choices]
        with watch.step("plan"):
            layout = self._lay_out(plan, encodings)
        if self.context is not None:
            with watch.step("read"):
                stitch(backbone, self.context, layout, None, [])
                logits = read_fresh(backbone, self.context, layout)
        else:
            with watch.step("read"):
                start = watch.seconds.get("read", 0.0)
                logits, cache = prefill(backbone, layout)
            if not self.method.shows_pages:
                self.library.speeds.saw_pass(layout.rows, layout.rows, watch.seconds["read"] - start)
            keep(self._context(layout.rows), layout, cache)
        return Turn(plan, layout, ["fresh"] * len(encodings), logits)

    def _undrawable(self, turn: Turn) -> dict[str, str]:
        """What the font lacks of the pages that this turn drew."""
        missing: dict[str, str] = {}
        for choice, state in zip(turn.plan.choices, turn.states, strict=True):
            if isinstance(choice.representation, Page) and state != "hit":
                found = self.library.renderer(choice.representation.spec).missing(choice.chunk.text)
                known = missing.get(choice.chunk.document_id, "")
                missing[choice.chunk.document_id] = "".join(dict.fromkeys(known + found))
        return {document: characters for document, characters in missing.items() if characters}

    def _lay_out(self, plan: Plan, chunks: Sequence[Content]) -> Layout:
        backbone, context = self.library.backbone, self.context
        contents = plan.fill(chunks)
        if context is None:
            split = backbone.chat.bare if self.raw else backbone.chat.split
            layout = lay_out(backbone, split(plan.turns), contents)
        else:
            pieces = backbone.chat.joint(plan.turns[-1].parts)
            layout = lay_out(
                backbone, pieces, contents, start=context.size, position=context.position, pending=self.pending
            )
        if layout.segments[-1].kind == "passage":
            raise MethodError("the prompt ends with a document, and its last words are read anew: put some after it")
        if layout.end > backbone.window:
            raise PromptTooLongError(
                f"the prompt takes {layout.end} positions, the model's window is {backbone.window}: ask over fewer "
                "or shorter documents"
            )
        return layout

    def _context(self, rows: int) -> Context:
        if self.context is None:
            self.context = self.library.backbone.context(rows + ANSWER_ROWS)
        return self.context
