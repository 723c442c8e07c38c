"""What comes back from asking."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kvbind.steps.decode import Finish
from kvbind.steps.feed import Loading

State = Literal["hit", "compiled now", "fresh"]


@dataclass(frozen=True)
class Source:
    """One chunk that a request showed the model.

    `rows` it fills, `relevance` to the question (None where it was not needed), `attention`: the share of the last
    question row's attention that fell on it (None unless evidence was asked for).
    """

    document: str
    chunk: int
    representation: str
    promoted: bool
    rows: int
    state: State
    relevance: float | None = None
    attention: float | None = None


@dataclass(frozen=True)
class Answer:
    """An answer, how long each step took (seconds), and what was reused.

    `tokens` counts rows: `head`, `reused`, `compiled` (missing from the bank, compiled within this request), `fresh`
    (computed for this request alone), `recomputed` (of the reused ones, those computed anew, averaged over layers) and
    `generated`. `ttft` is plan + fetch + stitch + select + read. `missing_characters` is what the font could not draw
    of the pages drawn within this request, by document. `decision` says why passages were used or not, where that was
    weighed. `loading` is what was read from the bank beside the computation.
    """

    text: str
    ids: tuple[int, ...]
    finish: Finish
    method: str
    ttft: float
    seconds: Mapping[str, float]
    tokens: Mapping[str, int]
    sources: tuple[Source, ...]
    missing_characters: Mapping[str, str] = field(default_factory=dict)
    decision: str = ""
    loading: Loading = field(default_factory=Loading)

    def __str__(self) -> str:
        return self.text
