"""The renderer: text to page texts, and page texts to images."""

import hashlib
import json
from dataclasses import asdict
from importlib.metadata import version
from math import inf

from PIL import Image

from kvbind.errors import RenderError
from kvbind.render.cuts import page_end
from kvbind.render.face import Face, load_face
from kvbind.render.layout import BLANKS, Box, Line, has_cjk, layout
from kvbind.render.raster import crop, page_pdf, rasterise
from kvbind.types import DPI_RANGE, PageSpec

RENDER_VERSION = 1
"""Raised whenever the same text would give other pixels or other pages."""

_LEAST_EMS = 4  # so that a tab, the widest thing of several characters, always fits a line


class Renderer:
    """Draws text as page images after Glyph's protocol, one page spec per renderer.

    Text is drawn left to right, one glyph a character: scripts that need shaping come out unshaped. The same
    spec, font bytes, text and dpi give the same pixels. Use a renderer in one thread at a time.
    """

    def __init__(self, spec: PageSpec = PageSpec()) -> None:  # noqa: B008 - frozen, so safe to share
        """Load the font and check the spec. Raises RenderError."""
        self.spec = spec
        self._box = _text_box(spec)
        self._face = load_face(spec.font)
        self.digest = _digest(spec, self._face)

    def paginate(self, text: str) -> list[str]:
        """Split a text into pages that each fit, ending at paragraphs, sentences, lines or words if possible.

        The pages joined are the text. Raises RenderError if nothing in it can be drawn.
        """
        _require_ink(text, self._box)
        pages, start = [], 0
        while start < len(text):
            end = page_end(text, start, self._face.widths, self._box)
            pages.append(text[start:end])
            start = end
        return pages

    def draw(self, text: str, dpi: int, *, last: bool = True) -> Image.Image:
        """Draw one page of text as an RGB image of `dpi` dots per inch, cropped as the spec says.

        `last` marks a document's last page. Blank lines at either end are not drawn. Raises RenderError if the
        text is blank or does not fit one page, or if `dpi` is out of range.
        """
        low, high = DPI_RANGE
        if not low <= dpi <= high:
            raise RenderError(f"dpi {dpi} is out of range; choose a value from {low} to {high}")
        pdf = page_pdf(self._lines(text), self.spec, self._face.name)
        size = (round(side * dpi / 72) for side in (self.spec.width, self.spec.height))
        return crop(rasterise(pdf, *size), self.spec, dpi, last)

    def missing(self, text: str) -> str:
        """The distinct characters of a text that the font lacks, in order of appearance."""
        known = self._face.characters | set(BLANKS)
        return "".join(character for character in dict.fromkeys(text) if character not in known)

    def _lines(self, text: str) -> list[Line]:
        _require_ink(text, self._box)
        lines = layout(text, self._face.widths, self._box, cjk=has_cjk(text), most=self._box.lines + 1)
        if len(lines) > self._box.lines:
            raise RenderError(
                f"text of {len(text)} characters does not fit a page of {self._box.lines} lines; split it with paginate"
            )
        return lines


def _text_box(spec: PageSpec) -> Box:
    sizes = (spec.width, spec.height, spec.font_size, spec.line_height)
    frees = (spec.margin_x, spec.margin_y, spec.padding)
    if not all(0 < size < inf for size in sizes) or not all(free >= 0 for free in frees):
        raise RenderError(f"{spec} has a size out of range; give positive sizes, and padding and margins of 0 or more")
    if spec.newline not in ("plain", "visible"):
        raise RenderError(f"newline {spec.newline!r} is unknown; choose 'plain' or 'visible'")
    width = spec.width - 2 * (spec.margin_x + spec.padding)
    height = spec.height - 2 * (spec.margin_y + spec.padding)
    if width < _LEAST_EMS * spec.font_size or height < max(spec.font_size, spec.line_height):
        raise RenderError(
            f"page of {spec.width}×{spec.height} pt has no room for a line of {spec.font_size} pt text; "
            "enlarge the page, or reduce its margins or the font size"
        )
    return Box(width / spec.font_size * 1000, int(height / spec.line_height + 1e-6), spec.newline == "visible")


def _digest(spec: PageSpec, face: Face) -> str:
    fields = asdict(spec) | {"font": face.digest}
    # 9 and 9.0 are the same size.
    fields |= {"font_size": float(spec.font_size), "line_height": float(spec.line_height)}
    libraries = {name: version(name) for name in ("reportlab", "pypdfium2")}
    record = {"spec": fields, "libraries": libraries, "version": RENDER_VERSION}
    return hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _require_ink(text: str, box: Box) -> None:
    if not text.strip(box.trailing):
        raise RenderError("text is empty or blank, so there is nothing to draw; give a text with visible characters")
