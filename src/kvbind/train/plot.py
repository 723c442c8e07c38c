"""A run's loss and F1 over its steps, and methods' deviations of attention, as SVGs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from kvbind.train.diagnostics import EDGE, PLACES, Deviations

WIDTH, HEIGHT, LEFT, TOP, GAP = 560, 180, 56, 34, 54
BLUE, RED, GREEN = "#1f5fa8", "#c2571a", "#2f8f4e"
CELL, DARKEST = 22, 2.0
Points = Sequence[tuple[float, float]]
Curves = Mapping[str, tuple[str, Points]]  # name → colour, points


def draw(records: Sequence[Mapping[str, Any]], total: int, title: str) -> str:
    """The log's records of steps (`loss`) and evaluations (`scores`) as two charts over `total` steps."""
    losses = [(record["step"], record["loss"]) for record in records if "loss" in record]
    evaluations = [record for record in records if "scores" in record]
    charts = [_chart(f"{escape(title)}: KL to full prefill, nats a token", {"": (BLUE, losses)}, 0, total, None)]
    for number, (key, name) in enumerate((("f1", "LongBench F1"), ("micro_f1", "corpus micro-F1")), 1):
        curves = {"trained": (BLUE, [(record["step"], record["scores"][key]) for record in evaluations])}
        for other, colour in (("full", GREEN), ("naive", RED)):
            found = [record[other][key] for record in evaluations if other in record]
            curves[other] = colour, [(step, value) for value in found[:1] for step in (0, total)]
        charts.append(_chart(f"held out: {name}", curves, number, total, 100.0))
    size = f'width="{LEFT + WIDTH + 90}" height="{TOP + len(charts) * (HEIGHT + GAP)}"'
    body = "\n".join(charts)
    return _svg(size, body)


def _chart(title: str, curves: Curves, number: int, total: int, top: float | None) -> str:
    """Axes, grid and curves; the vertical axis from 0 to `top`, or to the largest value."""
    y = TOP + number * (HEIGHT + GAP)
    high = top or max((value for _, points in curves.values() for _, value in points), default=1.0) or 1.0
    drawn = [f'<text x="{LEFT}" y="{y - 8}" font-weight="bold">{title}</text>']
    for part in range(5):
        at, x = y + HEIGHT - HEIGHT * part / 4, LEFT + WIDTH * part / 4
        drawn.append(f'<path d="M{LEFT} {at}h{WIDTH}" stroke="#ddd"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{high * part / 4:.3g}</text>')
        drawn.append(f'<text x="{x}" y="{y + HEIGHT + 16}" text-anchor="middle">{total * part / 4:.4g}</text>')
    for place, (name, (colour, points)) in enumerate(curves.items()):
        line = " ".join(
            f"{LEFT + step / max(total, 1) * WIDTH:.1f},{y + HEIGHT * (1 - min(value, high) / high):.1f}"
            for step, value in points
        )
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        drawn.append(f'<text x="{LEFT + WIDTH + 8}" y="{y + 14 + 16 * place}" fill="{colour}">{name}</text>')
    return "\n".join(drawn)


def draw_deviations(found: Sequence[Deviations]) -> str:
    """A heat map for each method: layers downwards, places in a document across; white 0, darkest from 2 on."""
    layers, places = found[0].deviation.shape
    height = layers * CELL + 62
    parts = [_heat_map(part, TOP + number * height) for number, part in enumerate(found)]
    size = f'width="{LEFT + places * CELL + 40}" height="{TOP + len(found) * height}"'
    return _svg(size, "\n".join(parts))


def _heat_map(part: Deviations, y: int) -> str:
    drawn = [f'<text x="{LEFT}" y="{y - 8}" font-weight="bold">{escape(part.method)}: deviation of attention</text>']
    for layer, values in enumerate(part.deviation.tolist()):
        drawn.append(f'<text x="{LEFT - 6}" y="{y + (layer + 0.7) * CELL:.0f}" text-anchor="end">{layer}</text>')
        for place, value in enumerate(values):
            shade = 0.0 if math.isnan(value) else min(value / DARKEST, 1.0)
            spot = f'x="{LEFT + place * CELL}" y="{y + layer * CELL}" width="{CELL}" height="{CELL}"'
            drawn.append(f'<rect {spot} fill="{BLUE}" fill-opacity="{shade:.3f}"><title>{value:.3f}</title></rect>')
    below = y + len(part.deviation) * CELL + 16
    for place, name in enumerate(PLACES):
        if name in ("+1", f"+{EDGE}", "interior", f"-{EDGE}", "-1"):
            at = LEFT + (place + 0.5) * CELL
            drawn.append(f'<text x="{at:.0f}" y="{below}" text-anchor="middle">{name.replace("interior", "in")}</text>')
    return "\n".join(drawn)


def _svg(size: str, body: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
