"""The model's own chat template, split around sentinels: no wrapper string is ever written by hand.

Content of the user never passes through the template as text: a sentinel stands for it, so that a template cannot
trim it and its text cannot pose as a special token.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any, Literal

from jinja2 import TemplateError

from kvbind.errors import ModelError

# Private-use characters: they cannot be part of a template, and user content never reaches the template.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_SENTINEL = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


# For templates that ask for today's date: passages compiled yesterday must be found today.
_FIXED_DATE = "{% macro strftime_now(form) %}26 Jul 2024{% endmacro %}"


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

    def split(self, turns: Sequence[Turn]) -> list[Piece]:
        """The conversation, up to the model's answer, as literals and slots in the template's order.

        Raises ModelError if the template refuses the conversation, or leaves out a part of it.
        """
        wanted = list(range(sum(len(turn.parts) for turn in turns)))
        refusal: ModelError | None = None
        # Templates of vision models take lists of items for every role, but for a few that want plain strings.
        for plain in (True,) if self.image_token is None else (False, True):
            try:
                pieces = self._pieces(*self._render(turns, plain))
            except ModelError as error:
                refusal = refusal or error
                continue
            if sorted(piece.part for piece in pieces if isinstance(piece, Slot)) == wanted:
                return pieces
        raise refusal or ModelError(
            f"the model's chat template leaves out a part of this conversation ({', '.join(t.role for t in turns)}): "
            "put its text into a user's message"
        )

    def head(self, kind: Literal["text", "page"]) -> str:
        """The native head: what the template writes before a user's first document, without a system prompt."""
        first = self.split([Turn("user", (Part(kind), Part("text")))])[0]
        return first.text if isinstance(first, Fixed) else ""

    def bare(self, turns: Sequence[Turn]) -> list[Piece]:
        """One user's message as it is, with no template around it: BOS, if the tokenizer adds one, and the slots."""
        begin = self.tokenizer.bos_token_id
        added = begin is not None and begin in self.tokenizer("a")["input_ids"]
        head: list[Piece] = [Fixed(self.tokenizer.bos_token)] if added else []
        return [*head, *(Slot(part) for part in range(sum(len(turn.parts) for turn in turns)))]

    def joint(self, parts: Sequence[Part]) -> list[Piece]:
        """What follows an answer of the model when the user goes on with `parts`, up to the next answer."""
        turns = [Turn("user", (Part("text"),)), Turn("assistant", (Part("text"),)), Turn("user", parts)]
        pieces = self.split(turns)
        after = pieces[pieces.index(Slot(1)) + 1 :]
        return [Slot(piece.part - 2) if isinstance(piece, Slot) else piece for piece in after]

    @cached_property
    def wrapper(self) -> str:
        """What the template writes for one page image: its placeholder between its own marks."""
        text, _ = self._render([Turn("user", (Part("text"), Part("page"), Part("text")))], plain=False)
        spans = list(_SENTINEL.finditer(text))
        inner = text[spans[0].end() : spans[-1].start()]
        token = str(self.image_token)
        return inner.strip() if token in inner else token

    def _render(self, turns: Sequence[Turn], plain: bool) -> tuple[str, list[int]]:
        """The template's text with sentinels, and the numbers of the parts that are pages."""
        numbers, pages = count(), []
        messages = []
        for turn in turns:
            items: list[dict[str, str]] = []
            for part, number in zip(turn.parts, numbers, strict=False):
                if part.kind == "page":
                    items.append({"type": "image"})
                    pages.append(number)
                elif items and items[-1]["type"] == "text":
                    items[-1]["text"] += f"{_OPEN}{number}{_CLOSE}"
                else:
                    items.append({"type": "text", "text": f"{_OPEN}{number}{_CLOSE}"})
            flat = plain and all(item["type"] == "text" for item in items)
            messages.append({"role": turn.role, "content": "".join(item["text"] for item in items) if flat else items})
        return self._apply(messages), pages

    def _apply(self, messages: list[dict[str, Any]]) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    messages,
                    chat_template=_FIXED_DATE + self.source,
                    tokenize=False,
                    add_generation_prompt=True,
                    **self.options,
                )
            )
        except (TemplateError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"the model's chat template refuses this conversation: {reason}") from error

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
