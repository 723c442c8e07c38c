"""One turn of a conversation, read, and what is said of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from kvbind.answer import Answer, Source, State
from kvbind.methods import Method
from kvbind.steps.clock import Stopwatch
from kvbind.steps.decode import Generation
from kvbind.steps.feed import Loading
from kvbind.steps.layout import Layout
from kvbind.steps.plan import Plan
from kvbind.types import label


@dataclass(frozen=True)
class Turn:
    """One turn, read: its plan and layout, how each chunk came there, and the logits (V,) of its last row.

    `decision` says why passages were used or not, where that was weighed; `repaired` is how many reused rows were
    computed anew, averaged over layers; `loading`, what was read beside that.
    """

    plan: Plan
    layout: Layout
    states: Sequence[State]
    logits: Tensor
    decision: str = ""
    repaired: float = 0.0
    loading: Loading = field(default_factory=Loading)


def answer_of(
    method: Method, turn: Turn, generation: Generation, watch: Stopwatch, shares: Sequence[float] | None
) -> Answer:
    """What a turn answered, where it came from, and how long it took."""
    sources = [
        Source(
            choice.chunk.document_id,
            choice.chunk.index,
            label(choice.representation),
            choice.promoted,
            segment.ids.shape[0],
            state,
            choice.relevance,
        )
        for choice, segment, state in zip(turn.plan.choices, turn.layout.chunks, turn.states, strict=True)
    ]
    if shares is not None:
        sources = [replace(source, attention=share) for source, share in zip(sources, shares, strict=True)]
    return Answer(
        generation.text,
        generation.ids,
        generation.finish,
        method.name,
        watch.ttft,
        dict(watch.seconds),
        _tokens(method, turn, generation, sources),
        tuple(sources),
    )


def _tokens(method: Method, turn: Turn, generation: Generation, sources: Sequence[Source]) -> dict[str, int]:
    def rows(state: State) -> int:
        return sum(source.rows for source in sources if source.state == state)

    head = 0 if method.write is None else turn.layout.count("head")
    fresh = turn.layout.rows - head - rows("hit") - rows("compiled now")
    return {
        "head": head,
        "reused": rows("hit"),
        "compiled": rows("compiled now"),
        "fresh": fresh,
        "recomputed": round(turn.repaired),
        "generated": len(generation.ids),
    }
