"""Figures as SVG, by matplotlib: the same bytes every time, and nothing to be loaded from elsewhere."""

import io
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

from kvbind.bench.panels import Figure, Panel, Point, Series
from kvbind.errors import BenchError

# Okabe and Ito's colours, told apart by colour-blind readers too; yellow is left out, it is lost on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKS = "osD^vPXp"  # one more than colours: each pair comes again late
ACROSS = 3
SIZE, LINE, AROUND = (4.6, 3.4), 0.18, 1.0  # inches: a panel at least, a name, and what stands around a panel's bars
SVG, LINKS = "http://www.w3.org/2000/svg", "{http://www.w3.org/1999/xlink}href"
# Text stays text: readers can search it, and the file is small.
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kvbind",
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
}


def draw(figure: Figure, prefix: str) -> str:
    """A figure as an SVG element, its ids beginning with `prefix`; raises BenchError where matplotlib is missing."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise BenchError("figures need matplotlib: pip install 'kvbind[bench]'") from error
    across = min(ACROSS, len(figure.panels))
    down = -(-len(figure.panels) // across)
    with matplotlib.rc_context(STYLE):
        size = SIZE[0] * across, _height(figure.panels) * down + _legend_height(figure.panels, across)
        canvas = Canvas(figsize=size, layout="constrained")
        FigureCanvasSVG(canvas)
        for place, panel in enumerate(figure.panels, 1):
            axes = canvas.add_subplot(down, across, place)
            (_draw_bars if panel.bars else _draw_points)(axes, panel)
            _label(axes, panel)
        _legend(canvas, figure.panels, across)
        written = io.BytesIO()
        canvas.savefig(written, format="svg")
    return _inline(written.getvalue(), figure.title, prefix)


def _height(panels: Sequence[Panel]) -> float:
    """Inches of a row of panels, in which every bar has its line."""
    return max(SIZE[1], *(AROUND + LINE * len(panel.series) if panel.bars else 0 for panel in panels))


def _legend_height(panels: Sequence[Panel], across: int) -> float:
    names = {series.name for panel in panels if not panel.bars for series in panel.series}
    return LINE * -(-len(names) // (2 * across))


def _label(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title)
    axes.set_xlabel(panel.y if panel.bars else panel.x)
    if not panel.bars:
        axes.set_ylabel(panel.y)
    if panel.log_x:
        axes.set_xscale("log")
        _round_ticks(axes.xaxis)
    if panel.ticks:
        axes.set_xticks(panel.ticks, [f"{tick:g}" for tick in panel.ticks])
    if panel.log_y:
        axes.set_yscale("log")
        _round_ticks(axes.yaxis)


def _round_ticks(axis: Any) -> None:
    """Plain numbers at 1, 2 and 5 of each decade, or, where the axis spans less than one, evenly spaced."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 10 * low else MaxNLocator(5))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _draw_bars(axes: Any, panel: Panel) -> None:
    """Bars to the right, so that their names can be read, the first on top."""
    for series in panel.series:
        (point,) = series.points
        colour = COLOURS[series.colour % len(COLOURS)]
        error = _error([point]) if point.y.low < point.y.high else None
        axes.barh(point.x, point.y.value, xerr=error, color=colour, ecolor="#444444", capsize=2)
    places = [series.points[0].x for series in panel.series]
    axes.set_yticks(places, [series.name for series in panel.series])
    axes.invert_yaxis()
    axes.set_xlim(left=0)


def _draw_points(axes: Any, panel: Panel) -> None:
    for series in panel.series:
        x, y = [point.x for point in series.points], [point.y.value for point in series.points]
        axes.errorbar(
            x, y, yerr=_error(series.points), label=series.name, capsize=2, markersize=5, linewidth=1, **_look(series)
        )
        for point in series.points:
            axes.annotate(point.note, (point.x, point.y.value), xytext=(4, 4), textcoords="offset points", fontsize=7)


def _error(points: Sequence[Point]) -> list[list[float]]:
    """How far intervals reach down and up; not below nothing, as rounding would have it."""
    down = [max(0.0, point.y.value - point.y.low) for point in points]
    return [down, [max(0.0, point.y.high - point.y.value) for point in points]]


def _look(series: Series) -> dict[str, Any]:
    return {"color": COLOURS[series.colour % len(COLOURS)], "marker": MARKS[series.colour % len(MARKS)]}


def _legend(canvas: Any, panels: Sequence[Panel], across: int) -> None:
    """One legend for all panels of points; bars are named at their axis."""
    found: dict[str, Any] = {}
    for axes, panel in zip(canvas.axes, panels, strict=True):
        if not panel.bars:
            handles, names = axes.get_legend_handles_labels()
            found |= dict(zip(names, handles, strict=True))
    if found:
        canvas.legend(found.values(), found, loc="outside lower center", ncols=2 * across, frameon=False, fontsize=8)


def _inline(written: bytes, title: str, prefix: str) -> str:
    """The SVG element alone: no declaration, no metadata (a date, links), and ids that no other figure has."""
    root = ET.fromstring(written)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{SVG}}}")
        attributes = [_attribute(name, value, prefix) for name, value in element.attrib.items()]
        element.attrib.clear()
        element.attrib.update(attributes)
    root.attrib.update({"xmlns": SVG, "role": "img", "aria-label": title})
    return ET.tostring(root, encoding="unicode")


def _attribute(name: str, value: str, prefix: str) -> tuple[str, str]:
    if name == "id":
        return name, f"{prefix}-{value}"
    if name == LINKS:
        return "href", f"#{prefix}-{value.removeprefix('#')}"
    return name, value.replace("url(#", f"url(#{prefix}-").replace("'DejaVu Sans'", "'DejaVu Sans', sans-serif")
