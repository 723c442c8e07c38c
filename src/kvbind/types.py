"""The nouns that every other module shares.

Letters in shape comments: L layers, H key-value heads, D head dim, T rows, R rows in one pass,
A position axes (1, or 3 under M-RoPE), B batch. A *row* is an index in a context, a *position* is a
RoPE coordinate, a *token id* is an index in the vocabulary; for page images rows and positions diverge.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from kvbind.errors import RenderError

DPI_RANGE = (24, 600)


def text_digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Document:
    """Source content, known by its id; it knows nothing of models."""

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the text: another digest under the same id is a new version."""
        return text_digest(self.text)


@dataclass(frozen=True)
class Doc:
    """The place of a document in a message, by its id."""

    id: str


@dataclass(frozen=True)
class PageSpec:
    """How text becomes page images, in points: Glyph's protocol by default.

    `padding` is kept free inside the margins, as frames of ReportLab do. `font` is the name of a font that ships with
    the package, or a path to a TrueType file. `newline` breaks lines where the text does ("plain"), or lets them run on
    with a red ``\\n`` in place of each break ("visible"). `crop_width` cuts every page after its widest line,
    `crop_last_page` cuts a document's last page below its last line.
    """

    width: int = 595
    height: int = 842
    margin_x: int = 10
    margin_y: int = 10
    padding: int = 6
    font: str = "DejaVuSans"
    font_size: float = 9
    line_height: float = 10
    newline: Literal["plain", "visible"] = "plain"
    crop_width: bool = True
    crop_last_page: bool = True


@dataclass(frozen=True)
class Text:
    """A document shown as tokens; `ending` closes each chunk so that the next one starts on a fresh line."""

    ending: str = "\n\n"


@dataclass(frozen=True)
class Page:
    """A document shown as page images of `dpi` dots per inch, 24 to 600; RenderError else."""

    dpi: int
    spec: PageSpec = PageSpec()

    def __post_init__(self) -> None:
        if not DPI_RANGE[0] <= self.dpi <= DPI_RANGE[1]:
            raise RenderError(f"dpi {self.dpi}: choose from {DPI_RANGE[0]} to {DPI_RANGE[1]}")


Representation = Text | Page


def label(representation: Representation) -> str:
    """A representation's short name: `text` or `page@72`."""
    return f"page@{representation.dpi}" if isinstance(representation, Page) else "text"


@dataclass(frozen=True)
class Chunk:
    """The piece of a document that is compiled as one: the whole text, or what one page holds.

    `last` marks a document's last chunk: only last pages are cropped in height. `document_digest` is that of the
    version it was cut from: a chunk of an older version is linked to nothing.
    """

    document_id: str
    index: int
    text: str
    last: bool = True
    document_digest: str = ""


@dataclass(frozen=True)
class Encoding:
    """A chunk as the model will see it, before any forward pass.

    `ids` (T,) holds token ids, −1 for a soft row. `positions` (A, T) counts from the chunk's own start, and `span` is
    how many positions the chunk uses up: the next one starts there. `pixels` is what the vision tower takes, and
    `image` (T,) is true where a row comes from it.
    """

    ids: Tensor
    positions: Tensor
    span: int
    pixels: Mapping[str, Tensor] | None = None
    image: Tensor | None = None


class KV(Protocol):
    """Keys and values of one passage, readable one layer at a time."""

    @property
    def layers(self) -> int:
        """How many layers there are."""

    def k(self, layer: int) -> Tensor:
        """Keys (H, T, D) of one layer, rotated at the passage's origin."""

    def v(self, layer: int) -> Tensor:
        """Values (H, T, D) of one layer."""

    def span(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Keys and values (n, H, T, D) of the layers from `first` up to, not including, `last`."""


@dataclass(frozen=True)
class StackedKV:
    """Keys and values of all layers in two tensors (L, H, T, D), in memory."""

    keys: Tensor
    values: Tensor

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return self.keys.shape[0]

    def k(self, layer: int) -> Tensor:
        """Keys (H, T, D) of one layer."""
        return self.keys[layer]

    def v(self, layer: int) -> Tensor:
        """Values (H, T, D) of one layer."""
        return self.values[layer]

    def span(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Keys and values (n, H, T, D) of some layers."""
        return self.keys[first:last], self.values[first:last]


@dataclass(frozen=True)
class Passage:
    """One compiled chunk in one representation.

    `ids` (T,) with −1 for a soft row, `positions` (A, T) from the passage's own start, `span` in positions. `origin`
    is the position at which it was compiled: keys are stored rotated there, and moved by the shift (anchor − origin).
    """

    key: str
    ids: Tensor
    positions: Tensor
    span: int
    origin: int
    kv: KV
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows the passage fills in a context."""
        return self.ids.shape[0]

    @property
    def in_memory(self) -> bool:
        """Whether keys and values are at hand, and not still in their record."""
        return isinstance(self.kv, StackedKV)
