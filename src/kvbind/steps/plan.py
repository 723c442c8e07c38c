"""Planning: which chunks a request shows, in which representation each, and the keys of their passages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvbind.errors import DocumentError
from kvbind.methods import Method
from kvbind.models import Part, Turn
from kvbind.relevance import cosines
from kvbind.steps.layout import Content
from kvbind.steps.library import Library
from kvbind.types import Chunk, Doc, Page, Representation, label


@dataclass(frozen=True)
class Message:
    """One message of a conversation: its role, and text and documents in order (or one alone)."""

    role: str
    content: str | Doc | Sequence[str | Doc]

    @property
    def parts(self) -> Sequence[str | Doc]:
        """Its content, as a sequence."""
        return [self.content] if isinstance(self.content, str | Doc) else self.content


@dataclass(frozen=True)
class Choice:
    """One chunk of a request: its representation, relevance, and the key of its passage ("" if nothing is reused)."""

    chunk: Chunk
    representation: Representation
    promoted: bool
    key: str
    relevance: float | None = None

    @property
    def shown(self) -> str:
        """Its representation's short name: `text` or `page@72`."""
        return label(self.representation)


@dataclass(frozen=True)
class Plan:
    """A request before its passages are fetched: turns for the template, and what fills their parts."""

    turns: tuple[Turn, ...]
    contents: tuple[str | Choice, ...]

    @property
    def choices(self) -> list[Choice]:
        """The chunks, in the request's order."""
        return [content for content in self.contents if isinstance(content, Choice)]

    def fill(self, chunks: Sequence[Content]) -> list[Content]:
        """What stands in each part of the request, given what stands in its chunks."""
        filled = iter(chunks)
        return [next(filled) if isinstance(content, Choice) else content for content in self.contents]


def make_plan(
    library: Library,
    messages: Sequence[Message],
    method: Method,
    *,
    query: str | None = None,
    relevance: bool = False,
) -> Plan:
    """Choose every chunk's representation by its relevance to `query` (QV-PIC, eq. 4 to 7).

    `query` None stands for the last words of the user. Relevance is computed if the method allocates by it, or if
    asked for.
    """
    shown = method.representations[0]
    parts = [_chunked(library, message, shown) for message in messages]
    chunks = [part for row in parts for part in row if isinstance(part, Chunk)]
    wanted = relevance or method.allocate is not None
    scores = score(library, query or question_of(messages), chunks) if wanted else [None] * len(chunks)
    choices = iter(choose(library, method, chunks, scores))
    turns = [
        Turn(message.role, [Part(_kind(part, shown)) for part in row])
        for message, row in zip(messages, parts, strict=True)
    ]
    contents = [next(choices) if isinstance(part, Chunk) else part for row in parts for part in row]
    return Plan(tuple(turns), tuple(contents))


def _chunked(library: Library, message: Message, shown: Representation) -> list[str | Chunk]:
    parts: list[str | Chunk] = []
    for content in message.parts:
        if isinstance(content, Doc):
            parts += library.chunks(library.bank.document(content.id), shown)
        elif content.isascii() or content == content.encode("utf-8", "replace").decode("utf-8"):
            parts.append(content)
        else:
            raise DocumentError(
                f"the {message.role}'s message holds half a character (a lone surrogate): decode it anew"
            )
    return parts


def choose(library: Library, method: Method, chunks: Sequence[Chunk], scores: Sequence[float | None]) -> list[Choice]:
    """Each chunk with the representation that the method allocates to it, and its key."""
    numbers = method.choose([value if value is not None else 0.0 for value in scores])
    choices = []
    for chunk, value, number in zip(chunks, scores, numbers, strict=True):
        representation = method.representations[number]
        key = library.key(chunk, representation, method.write) if method.write else ""
        choices.append(Choice(chunk, representation, number > 0, key, value))
    return choices


def score(library: Library, question: str, chunks: Sequence[Chunk]) -> list[float]:
    """Cosine of the question with each chunk (QV-PIC, eq. 4 and 5 before clipping)."""
    if not chunks:
        return []
    vectors = library.vectors([chunk.text for chunk in chunks])  # (N, d)
    return cosines(library.embedder.embed([question])[0], vectors).tolist()


def question_of(messages: Sequence[Message]) -> str:
    """The last words of the user."""
    words = [part for message in messages if message.role == "user" for part in message.parts if isinstance(part, str)]
    return words[-1] if words else ""


def _kind(part: str | Chunk, shown: Representation) -> Literal["text", "page"]:
    return "page" if isinstance(part, Chunk) and isinstance(shown, Page) else "text"
