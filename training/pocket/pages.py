"""A store of rendered notes for training: pages at both resolutions, and where every glyph stands.

python training/pocket/pages.py FOLDER --shards 40      renders shards that are not there yet; train.py takes them up
"""

import argparse
import pickle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from glyphs import GLYPHS, Marks, mark
from material import KIND_NAMES, make
from model import CARD, DPIS

from kvbind.render import Renderer

SHARD = 500
SHARES = (0.0, 0.2, 0.5, 0.15, 0.15, 0.0)
ALONE = {0: "tiny", 5: "tiny", 9: "needles"}
"""By the last digit of a shard's number, what it holds alone."""
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


def _fitting(kind: str, rng: Random, renderer: Renderer) -> Any:
    """An entry that one card holds, as but one in some thousand does not."""
    while len(renderer.paginate((entry := make(kind, rng)).text)) > 1:
        pass
    return entry


def shard(number: int) -> dict[str, Any]:
    """Entries by kind, drawn from the shard's number, their pages by DPI, and their glyphs."""
    rng, renderer = Random(f"pages/{number}"), Renderer(CARD)
    kinds = [ALONE.get(number % 10) or rng.choices(KIND_NAMES, SHARES)[0] for _ in range(SHARD)]
    entries = [_fitting(kind, rng, renderer) for kind in kinds]
    drawn = {
        dpi: np.stack([np.asarray(renderer.draw(entry.text, dpi).convert("L")) for entry in entries]) for dpi in DPIS
    }
    return {
        "kinds": kinds,
        "entries": entries,
        "pages": drawn,
        "glyphs": [glyphs(renderer, entry.text) for entry in entries],
    }


def write_shards(folder: Path, count: int) -> None:
    """Render what is missing of the first `count` shards."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"{number:05}.pkl"
        if not path.exists():
            part = path.with_suffix(".part")
            part.write_bytes(pickle.dumps(shard(number)))
            part.rename(path)


class Store:
    """The shards read so far; `refresh` takes up new ones."""

    def __init__(self, folder: Path, tokenizer: Any, most: int = 200) -> None:
        self.folder, self.tokenizer, self.most = folder, tokenizer, most
        self.names: list[str] = []
        self.shards: list[dict[str, Any]] = []
        self.by_kind: dict[str, list[tuple[int, int]]] = {}

    def refresh(self) -> int:
        """Read shards that are new, up to `most`; how many there are."""
        for path in sorted(self.folder.glob("*.pkl")):
            if path.name not in self.names and len(self.shards) < self.most:
                read = pickle.loads(path.read_bytes())
                pairs = zip(read["entries"], read["glyphs"], strict=True)
                read["marks"] = [mark(self.tokenizer, entry.text, glyphs) for entry, glyphs in pairs]
                self.shards.append(read)
                self.names.append(path.name)
        self.by_kind = {}
        for number, read in enumerate(self.shards):
            for index, kind in enumerate(read["kinds"]):
                self.by_kind.setdefault(kind, []).append((number, index))
        return len(self.shards)

    def draw(self, kind: str, rng: Random) -> tuple[Any, dict[int, np.ndarray], Marks]:
        """A random entry of a kind, its page by DPI, and its marks."""
        number, index = rng.choice(self.by_kind[kind])
        read = self.shards[number]
        return (
            read["entries"][index],
            {dpi: pages[index] for dpi, pages in read["pages"].items()},
            read["marks"][index],
        )


def main() -> None:
    """Render the shards asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shards", type=int, default=40)
    arguments = parser.parse_args()
    write_shards(arguments.folder, arguments.shards)


if __name__ == "__main__":
    main()
