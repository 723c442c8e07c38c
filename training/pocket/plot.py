"""Draws the training log as an SVG: held-out answers right, glyphs named, losses, and levels, over hours.

python training/pocket/plot.py FOLDER/log.jsonl training/pocket/curves.svg
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, GAP = 620, 190, 52, 34, 48
COLOURS = ("#1f5fa8", "#c2571a", "#2f8f4e", "#8a4fa3", "#7a7a7a", "#b03060", "#00808a", "#a08000")
PANELS: Sequence[tuple[str, tuple[str, ...], float | None]] = (
    ("held out, five notes: whole answers right", ("eval5/text", "eval5/120", "eval5/mixed", "eval5/72"), 1.0),
    ("held out, one note: whole answers right", ("eval1/text", "eval1/120", "eval1/72"), 1.0),
    ("training contexts of the level reached: whole answers right", ("ask/text", "ask/120", "ask/72"), 1.0),
    (
        "glyphs (and words, of five guesses) named under the visual tokens",
        ("named/120", "named/72", "words/120", "words/72"),
        1.0,
    ),
    ("loss", ("text", "pages", "pages/120", "pages/72", "naming"), None),
    ("level", ("level text", "level 120", "level 72"), None),
)


def points(records: Sequence[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    """Hours and values of one curve."""
    if name.startswith("level "):
        key = name.partition(" ")[2]
        return [(record["hours"], record["level"][key]) for record in records if "level" in record]
    return [(record["hours"], record[name]) for record in records if name in record]


def panel(
    records: Sequence[dict[str, Any]], title: str, names: Sequence[str], top: float | None, y: int, end: float
) -> str:
    """One chart: axes, grid and curves."""
    curves = {name: points(records, name) for name in names}
    values = [value for curve in curves.values() for _, value in curve] or [1.0]
    low, high = min(0.0, *values), top or max(values) or 1.0

    def place(hours: float, value: float) -> str:
        return f"{LEFT + hours / end * WIDTH:.1f},{y + HEIGHT - (value - low) / (high - low) * HEIGHT:.1f}"

    drawn = [f'<text x="{LEFT}" y="{y - 8}" font-weight="bold">{title}</text>']
    for part in range(5):
        value, at = low + (high - low) * part / 4, y + HEIGHT - HEIGHT * part / 4
        drawn.append(f'<path d="M{LEFT} {at}h{WIDTH}" stroke="#ddd"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{value:.2g}</text>')
        hours = f"{end * part / 4:.2g} h"
        drawn.append(f'<text x="{LEFT + WIDTH * part / 4}" y="{y + HEIGHT + 15}" text-anchor="middle">{hours}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number]
        line = " ".join(place(hours, value) for hours, value in curve)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        drawn.append(f'<text x="{LEFT + WIDTH + 10}" y="{y + 14 + 16 * number}" fill="{colour}">{name}</text>')
    return "\n".join(drawn)


def main() -> None:
    """Read the log, write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    records = [json.loads(line) for line in arguments.log.read_text().splitlines()]
    end = max(record["hours"] for record in records)
    step = HEIGHT + GAP
    charts = [panel(records, *chart, TOP + number * step, end) for number, chart in enumerate(PANELS)]
    size = f'width="{LEFT + WIDTH + 130}" height="{TOP + step * len(PANELS)}"'
    body = "\n".join(charts)
    arguments.out.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    main()
