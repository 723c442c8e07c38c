"""Notes drawn as pages for training, every one afresh: of pages seen twice the vision tower learns the pages."""

from random import Random
from typing import Any

import numpy as np
from glyphs import GLYPHS, Marks, mark
from material import Entry, make
from model import CARD

from kvbind.render import Renderer

_CODES = {glyph: code for code, glyph in enumerate(GLYPHS)}


def glyphs(renderer: Renderer, text: str) -> np.ndarray:
    """Code, x and y (G, 3) of every glyph's middle, in points from the page's upper left corner."""
    spec, widths = renderer.spec, renderer._face.widths
    found = []
    for number, line in enumerate(renderer._lines(text)):
        x = float(spec.margin_x + spec.padding)
        y = spec.margin_y + spec.padding + spec.font_size * 0.68 + number * spec.line_height
        squeeze = line.over / max(1, line.text.count(" ")) * spec.font_size / 1000
        for character in line.text:
            width = widths[character] * spec.font_size / 1000
            if character != " ":
                found.append((_CODES.get(character, 0), x + width / 2, y))
            x += width - (squeeze if character == " " else 0)
    return np.array(found, dtype=np.float32)


def fitting(kind: str, rng: Random, renderer: Renderer) -> Entry:
    """An entry that one card holds, as but one in some thousand does not."""
    while len(renderer.paginate((entry := make(kind, rng)).text)) > 1:
        pass
    return entry


class Pages:
    """Draws entries on cards."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.renderer = tokenizer, Renderer(CARD)

    def entry(self, kind: str, rng: Random) -> Entry:
        """A fresh entry of a kind that one card holds."""
        return fitting(kind, rng, self.renderer)

    def draw(self, entry: Entry, dpi: int) -> np.ndarray:
        """Its page in grey levels (H, W)."""
        return np.asarray(self.renderer.draw(entry.text, dpi).convert("L"))

    def marks(self, entry: Entry) -> Marks:
        """What stands on its page, and where."""
        return mark(self.tokenizer, entry.text, glyphs(self.renderer, entry.text))
