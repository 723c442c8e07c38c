"""What a published method *is*, as data: what to write, which representation each chunk gets, what to repair."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from kvbind.methods.selectors import Selector
from kvbind.types import Page, Representation
from kvbind.writers import TrainedWriter

Allocate = Callable[[Sequence[float]], Sequence[int]]


@dataclass(frozen=True)
class Write:
    """The context in which a chunk is compiled; the rows before it are dropped.

    `bare`: nothing before it. `dummy`: `count` repetitions of the token "x". `template`: the model's own chat-template
    head, without a system prompt (QV-PIC, eq. 1). A trained `writer` compiles with its LoRA on, its soft rows around
    the chunk; these are kept with it.
    """

    frame: Literal["bare", "dummy", "template"]
    count: int = 0
    writer: TrainedWriter | None = None

    @property
    def is_plain(self) -> bool:
        """Whether a chunk right after the same head is computed as in full prefill."""
        return self.writer is None

    @property
    def label(self) -> str:
        """Its short name, as the bank lists it."""
        if self.writer is not None:
            return f"{self.writer.config.kind}:{self.writer.digest[:12]}"
        return f"{self.frame}:{self.count}" if self.frame == "dummy" else self.frame


@dataclass(frozen=True)
class Method:
    """One method with its parameters filled in.

    `write` is None where nothing is reused. `allocate` takes the chunks' relevance scores and gives each chunk a
    representation by its number in `representations`; None gives every chunk the first. `selector` says which
    reused rows are computed anew; None: none.
    """

    name: str
    write: Write | None
    representations: tuple[Representation, ...]
    allocate: Allocate | None = None
    selector: Selector | None = None

    @property
    def shows_pages(self) -> bool:
        """Whether documents are shown as page images."""
        return isinstance(self.representations[0], Page)

    def choose(self, scores: Sequence[float]) -> Sequence[int]:
        """The number of each chunk's representation, for its relevance to the question."""
        return [0] * len(scores) if self.allocate is None else self.allocate(scores)
