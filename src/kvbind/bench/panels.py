"""What a figure is made of, as numbers: points in series, series in panels. Nothing here draws."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvbind.bench.statistics import Interval

F1, TTFT = "F1", "TTFT warm, ms"


@dataclass(frozen=True)
class Point:
    """A value at `x` (in a panel of bars, the bar's place), and a word beside it."""

    x: float
    y: Interval
    note: str = ""


@dataclass(frozen=True)
class Series:
    """Points of one name and colour, joined by a line."""

    name: str
    colour: int
    points: Sequence[Point]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: bars, one for each series, or points; `ticks` are marked on the x axis, if there are any."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    bars: bool = False
    ticks: Sequence[float] = ()


@dataclass(frozen=True)
class Figure:
    """Panels under one title, or, where `panels` is empty, the line that says why."""

    name: str
    title: str
    panels: Sequence[Panel]
    missing: str = ""


def figure(name: str, title: str, panels: Iterable[Panel], missing: str = "") -> Figure:
    """A figure of the panels that have something to show; `missing` says why there can be none."""
    shown = [] if missing else [panel for panel in panels if panel.series]
    return Figure(name, title, shown, missing or ("" if shown else "no example was answered"))
