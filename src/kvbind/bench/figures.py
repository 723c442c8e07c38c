"""The papers' figures, as numbers, from a report's tables."""

import math
from collections.abc import Mapping, Sequence

from kvbind.bench.groups import Group
from kvbind.bench.panels import F1, TTFT, Figure, Panel, Point, Series, figure
from kvbind.bench.statistics import Interval
from kvbind.bench.tables import Row, rows
from kvbind.bench.trends import documents, positions

AVERAGE = "mean over tasks"
ABLATED = {"bare": "without template", "template": "template"}

Tables = Mapping[str, Sequence[Row]]


def tables_of(group: Group) -> Tables:
    """Rows by task, and last the means over tasks where there are several."""
    tables = {task: rows(group, [task]) for task in group.tasks}
    return tables | {AVERAGE: rows(group, list(group.tasks))} if len(tables) > 1 else tables


def figures(group: Group, tables: Tables) -> list[Figure]:
    """All figures of a group, in order; those over tasks show the mean over tasks."""
    last = list(tables)[-1]
    return [
        _tradeoff(group, tables),
        figure("quality", "F1 by method", [_bar_panel(group, title, _f1(table)) for title, table in tables.items()]),
        _ablation(group, _f1(tables[last]), last),
        positions(group),
        documents(group),
        _bytes(group, tables[last], last),
        _break_even(group, tables[last], last),
    ]


def _f1(table: Sequence[Row]) -> dict[str, Interval | None]:
    return {row.method: row.f1 for row in table}


def _colour(group: Group, method: str) -> int:
    return list(group.methods).index(method)


def _tradeoff(group: Group, tables: Tables) -> Figure:
    panels = []
    for title, table in tables.items():
        points = {row.method: (1000 * row.warm.value, row.f1) for row in table if row.warm and row.f1}
        series = []
        for name, members in families(group).items():
            notes = {method: f"{_dpi(group, method)} DPI" if len(members) > 1 else "" for method in members}
            shown = [Point(*points[method], notes[method]) for method in members if method in points]
            if shown:
                series.append(Series(name, _colour(group, members[0]), shown))
        panels.append(Panel(title, TTFT, F1, series, log_x=True))
    return figure("tradeoff", "F1 against time to first token (resolutions of a method joined)", panels)


def families(group: Group) -> dict[str, list[str]]:
    """Methods that differ in nothing but their pages' resolution, under one name, from low to high."""
    found: dict[str, list[str]] = {}
    for method, facts in group.methods.items():
        joined = facts["pages"] and len(facts["shown"]) == 1
        settings = ",".join(f"{name}={value}" for name, value in facts["given"].items() if name != "dpi")
        name = f"{facts['name']}:{settings}" if settings else facts["name"]
        found.setdefault(f"{name}, pages" if joined else method, []).append(method)
    return {
        members[0] if len(members) == 1 else name: sorted(members, key=lambda method: _dpi(group, method))
        for name, members in found.items()
    }


def _dpi(group: Group, method: str) -> int:
    return int(group.methods[method]["shown"][0].partition("@")[2] or 0)


def _bar_panel(group: Group, title: str, bars: Mapping[str, Interval | None], y: str = F1) -> Panel:
    series = [
        Series(method, _colour(group, method), [Point(place, value)])
        for place, (method, value) in enumerate(bars.items())
        if value is not None
    ]
    return Panel(title, "", y, series, bars=True)


def _ablation(group: Group, f1: Mapping[str, Interval | None], title: str) -> Figure:
    name, heading = "ablation", "Template × two resolutions"
    dual = next((facts["shown"] for facts in group.methods.values() if len(facts["shown"]) > 1), None)
    if dual is None:
        return Figure(name, heading, [], "no method of this run shows two resolutions, as qv-pic does")
    wanted = {
        f"{' + '.join(shown)}, {words}": _method_of(group, write, shown)
        for write, words in ABLATED.items()
        for shown in (dual[:1], dual)
    }
    lacking = "; ".join(cell for cell, method in wanted.items() if method is None)
    bars = [
        Series(cell, _colour(group, method), [Point(place, value)])
        for place, (cell, method) in enumerate(wanted.items())
        if method is not None and (value := f1[method]) is not None
    ]
    missing = f"no method of this run shows {lacking}" if lacking else ""
    return figure(name, heading, [Panel(title, "", F1, bars, bars=True)], missing)


def _method_of(group: Group, write: str, shown: Sequence[str]) -> str | None:
    """The first method that writes and shows so, and repairs nothing."""
    wanted = (write, list(shown), False)
    found = ((method, (facts["write"], facts["shown"], facts["repairs"])) for method, facts in group.methods.items())
    return next((method for method, facts in found if facts == wanted), None)


def _bytes(group: Group, table: Sequence[Row], title: str) -> Figure:
    series = [
        Series(row.method, _colour(group, row.method), [Point(row.document_bytes / 1e6, row.f1)])
        for row in table
        if row.document_bytes and row.f1
    ]
    panel = Panel(title, "MB per document", F1, series, log_x=True)
    return figure("bytes", "F1 against bytes", [panel], "" if series else "no method of this run keeps passages")


def _break_even(group: Group, table: Sequence[Row], title: str) -> Figure:
    known = {row.method: row.reuses for row in table if row.reuses is not None}
    bars = {method: Interval(value, value, value, 1, 1) for method, value in known.items() if math.isfinite(value)}
    never = ", ".join(method for method in known if method not in bars)
    heading = "Break-even: reuses that pay for compiling" + (f" (never: {never})" if never else "")
    missing = "" if bars else "it takes full prefill of the same representation, measured compiles, and a faster hit"
    return figure("break-even", heading, [_bar_panel(group, title, bars, "reuses")], missing)
