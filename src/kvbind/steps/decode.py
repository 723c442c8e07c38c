"""From first logits to an answer: one row at a time over the same context."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from kvbind.errors import MethodError
from kvbind.models import Backbone, Context, line
from kvbind.steps.read import read

Finish = Literal["stop", "length", "window"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen: greedy at temperature 0, else from the smallest set of mass `top_p`.

    `stop` strings end the answer and are not part of it; `seed` makes sampling repeatable.
    """

    max_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens < 0:
            raise MethodError(f"max_tokens={self.max_tokens}: give 0 or more")
        if not (self.temperature == 0 or 0.01 <= self.temperature <= 100):
            raise MethodError(f"temperature={self.temperature}: give 0 (greedy), or 0.01 to 100")
        if not 0 < self.top_p <= 1:
            raise MethodError(f"top_p={self.top_p}: give more than 0, and at most 1")
        if isinstance(self.stop, str) or not all(self.stop):
            raise MethodError(f"stop={self.stop!r}: give a tuple of strings, none of them empty")


@dataclass(frozen=True)
class Generation:
    """What was generated: ids without the stop token, their text, why it ended, and ids not yet in the context."""

    ids: tuple[int, ...]
    text: str
    finish: Finish
    pending: tuple[int, ...]


def sample(logits: Tensor, sampling: Sampling, generator: torch.Generator | None = None) -> int:
    """One token id from logits (V,)."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    probabilities, ids = (logits.float() / sampling.temperature).softmax(-1).sort(descending=True)
    before = probabilities.cumsum(-1) - probabilities
    kept = probabilities.masked_fill(before >= sampling.top_p, 0).cpu()
    kept[0] = max(float(kept[0]), torch.finfo(torch.float32).tiny)  # the likeliest stays, whatever top_p
    return int(ids[int(torch.multinomial(kept, 1, generator=generator))])


def step(backbone: Backbone, context: Context, token: int) -> Tensor:
    """Read one token at the end of the context; logits (V,) of what follows it."""
    rows = context.extend(1)
    ids = torch.tensor([[token]], device=context.device)
    positions = line(context.position, 1, backbone.family.axes)[:, None].to(context.device)
    context.position += 1
    hidden = read(backbone, context, backbone.embed(ids), rows, positions)
    return backbone.logits(hidden)[0, -1]


def decode(
    backbone: Backbone,
    context: Context,
    logits: Tensor,
    sampling: Sampling,
    on_text: Callable[[str], None] | None = None,
) -> Generation:
    """Generate until a stop token or string, `max_tokens`, or the end of the model's window."""
    generator = torch.Generator().manual_seed(sampling.seed) if sampling.seed is not None else None
    ids: list[int] = []
    stream = _Stream(backbone, sampling.stop, on_text)
    finish: Finish = "length"
    unread = 0  # of the ids, how many are not in the context yet
    while len(ids) < sampling.max_tokens:
        token = sample(logits, sampling, generator)
        if token in backbone.stops:
            finish = "stop"
            break
        ids.append(token)
        unread = 1
        if stream.push(ids):
            unread = _cut(context, ids, stream.kept(ids), unread)
            finish = "stop"
            break
        if context.position >= backbone.window:
            finish = "window"
            break
        if len(ids) < sampling.max_tokens:
            logits, unread = step(backbone, context, token), 0
    return Generation(tuple(ids), stream.finish(ids), finish, tuple(ids[len(ids) - unread :]))


def _cut(context: Context, ids: list[int], kept: int, unread: int) -> int:
    """Forget the ids of a stop string, in the context too; how many of the rest are not in the context."""
    read = len(ids) - unread
    surplus = max(0, read - kept)
    context.truncate(context.size - surplus, context.position - surplus)
    del ids[kept:]
    return max(0, kept - read)


class _Stream:
    """Text as it grows: whole characters only, and nothing of a stop string, not even its beginning."""

    def __init__(self, backbone: Backbone, stops: tuple[str, ...], on_text: Callable[[str], None] | None) -> None:
        self.tokenizer, self.stops, self.on_text = backbone.tokenizer, stops, on_text
        self.sent = 0
        self.whole: str | None = None  # the answer, once a stop string has ended it

    def push(self, ids: list[int]) -> bool:
        """Take the ids so far; true when a stop string is complete."""
        text = self._text(ids)
        stopped = any(stop in text for stop in self.stops)
        if self.on_text is not None and not text.endswith("\ufffd"):
            self._send(self._cut(text)[: None if stopped else len(text) - self._held(text)])
        return stopped

    def kept(self, ids: list[int]) -> int:
        """How many ids lie before the first stop string."""
        self.whole = self._cut(self._text(ids))
        return max(n for n in range(len(ids) + 1) if len(self._text(ids[:n])) <= len(self.whole))

    def finish(self, ids: list[int]) -> str:
        """The whole answer."""
        text = self._text(ids) if self.whole is None else self.whole
        if self.on_text is not None:
            self._send(text)
        return text

    def _text(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _cut(self, text: str) -> str:
        places = [text.find(stop) for stop in self.stops if stop in text]
        return text[: min(places)] if places else text

    def _held(self, text: str) -> int:
        endings = (length for stop in self.stops for length in range(1, len(stop)) if text.endswith(stop[:length]))
        return max(endings, default=0)

    def _send(self, text: str) -> None:
        if self.on_text is not None and len(text) > self.sent:
            self.on_text(text[self.sent :])
            self.sent = len(text)
