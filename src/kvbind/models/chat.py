"""The model's own chat template, split around sentinels: no wrapper string is ever written by hand.

Content of the user never passes through the template as text: a sentinel stands for it, so that a template cannot
trim it and its text cannot pose as a special token.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jinja2 import TemplateError

from kvbind.errors import ModelError

# Private-use characters: they cannot be part of a template, and user content never reaches the template.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_SENTINEL = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


@dataclass(frozen=True)
class Fixed:
    """Text that the template wrote; special tokens in it are meant."""

    text: str


@dataclass(frozen=True)
class Slot:
    """The place of one content part, by its number in the conversation."""

    part: int


@dataclass(frozen=True)
class Part:
    """What a message holds: words of the user's ("text"), a document as text, or one page image ("page")."""

    kind: Literal["text", "page"]


@dataclass(frozen=True)
class Turn:
    """One message: its role and the kinds of its parts, in order."""

    role: str
    parts: Sequence[Part]


Piece = Fixed | Slot


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template and the tokenizer that runs it; `image_token` is the model's image placeholder, if any."""

    tokenizer: Any
    source: str
    image_token: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def split(self, turns: Sequence[Turn], *, prompt: bool = True) -> list[Piece]:
        """The conversation as literals and slots, in the order in which the template writes them."""
        numbers = iter(range(sum(len(turn.parts) for turn in turns)))
        messages, pages = [], []
        for turn in turns:
            content, turn_pages = self._content(turn, numbers)
            messages.append({"role": turn.role, "content": content})
            pages += turn_pages
        return self._pieces(self._render(messages, prompt), pages)

    def head(self, kind: Literal["text", "page"]) -> str:
        """The native head: what the template writes before a user's first document, without a system prompt."""
        first = self.split([Turn("user", (Part(kind), Part("text")))])[0]
        return first.text if isinstance(first, Fixed) else ""

    def joint(self, parts: Sequence[Part]) -> list[Piece]:
        """What follows an answer of the model when the user goes on with `parts`; the answer is slot −1 no more."""
        turns = [Turn("user", (Part("text"),)), Turn("assistant", (Part("text"),)), Turn("user", parts)]
        pieces = self.split(turns)
        after = pieces[pieces.index(Slot(1)) + 1 :]
        return [Slot(piece.part - 2) if isinstance(piece, Slot) else piece for piece in after]

    @property
    def wrapper(self) -> str:
        """What the template writes for one page image: its placeholder between its own marks."""
        between = Turn("user", (Part("text"), Part("page"), Part("text")))
        content, _ = self._content(between, iter(range(3)))
        text = self._render([{"role": "user", "content": content}], True)
        spans = list(_SENTINEL.finditer(text))
        inner = text[spans[0].end() : spans[-1].start()]
        token = str(self.image_token)
        return inner.strip() if token in inner else token

    def _content(self, turn: Turn, numbers: Any) -> tuple[Any, list[int]]:
        items: list[dict[str, str]] = []
        pages = []
        for part in turn.parts:
            number = next(numbers)
            if part.kind == "page":
                items.append({"type": "image"})
                pages.append(number)
            elif items and items[-1]["type"] == "text":
                items[-1]["text"] += f"{_OPEN}{number}{_CLOSE}"
            else:
                items.append({"type": "text", "text": f"{_OPEN}{number}{_CLOSE}"})
        plain = self.image_token is None or (turn.role != "user" and not pages)
        return ("".join(item["text"] for item in items) if plain else items), pages

    def _render(self, messages: list[dict[str, Any]], prompt: bool) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages,
                    chat_template=self.source,
                    tokenize=False,
                    add_generation_prompt=prompt,
                    **self.options,
                )
            )
        except TemplateError as error:
            raise ModelError(f"the model's chat template refuses this conversation: {error}") from error

    def _pieces(self, text: str, pages: Sequence[int]) -> list[Piece]:
        pattern = _SENTINEL.pattern
        if pages:
            pattern += f"|({re.escape(self.wrapper)})"
        pieces: list[Piece] = []
        remaining, start = iter(pages), 0
        for found in re.finditer(pattern, text):
            if found.start() > start:
                pieces.append(Fixed(text[start : found.start()]))
            pieces.append(Slot(int(found[1]) if found[1] is not None else next(remaining)))
            start = found.end()
        if start < len(text):
            pieces.append(Fixed(text[start:]))
        return pieces
