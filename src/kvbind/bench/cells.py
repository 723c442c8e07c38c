"""A report's numbers as text for tables, and as plain values for CSV."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.filesize import decimal

from kvbind.bench.panels import Panel
from kvbind.bench.statistics import Interval
from kvbind.bench.tables import Difference, Row

NOT_MEASURED = "–"
NOISE = "not distinguishable"


@dataclass(frozen=True)
class Table:
    """Text in rows under headers; the first column is the method."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


def table(title: str, rows: Sequence[Row]) -> Table:
    """The rows under the report's columns."""
    return Table(title, list(COLUMNS), [[cell(row) for cell in COLUMNS.values()] for row in rows])


def places_table(panel: Panel) -> Table:
    """A panel of points as a table: what is on its x axis across, a row for each series."""
    across = sorted({point.x for series in panel.series for point in series.points})
    rows = []
    for series in panel.series:
        known = {point.x: point.y for point in series.points}
        rows.append([series.name, *(_interval(known.get(x)) for x in across)])
    return Table(f"{panel.title}: {panel.y} by {panel.x}", ["method", *(f"{x:g}" for x in across)], rows)


def _interval(interval: Interval | None, scale: float = 1.0) -> str:
    if interval is None:
        return NOT_MEASURED
    value, low, high = (number(part * scale) for part in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"


def number(value: float) -> str:
    """One decimal, or three digits where the number is small."""
    return f"{value:,.1f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def _difference(difference: Difference | None, sign: str = "+") -> str:
    if difference is None:
        return NOT_MEASURED
    parts = (difference.interval.value, difference.interval.low, difference.interval.high)
    value, low, high = (f"{part:{sign}.{1 if sign else 3}f}" for part in parts)
    noise = "" if difference.distinguishable else f", {NOISE}"
    return f"{value} [{low}, {high}]{noise} (to {difference.against})"


def _reuses(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return "never" if math.isinf(value) else number(value)


COLUMNS: dict[str, Callable[[Row], str]] = {
    "method": lambda row: row.method,
    "examples": lambda row: f"{row.examples}" + (f" ({row.errors} failed)" if row.errors else ""),
    "F1": lambda row: _interval(row.f1),
    "micro-F1": lambda row: _interval(row.micro),
    "exact match": lambda row: _interval(row.exact),
    "F1 to full prefill": lambda row: _difference(row.full),
    "F1 to template": lambda row: _difference(row.template),
    "TTFT warm, ms": lambda row: _interval(row.warm, 1000),
    "TTFT to full prefill": lambda row: _difference(row.ratio, sign=""),
    "TTFT cold, ms": lambda row: _interval(row.cold, 1000),
    "bytes per document": lambda row: decimal(round(row.document_bytes)) if row.document_bytes else NOT_MEASURED,
    "compile per document, s": lambda row: number(row.compile_seconds) if row.compile_seconds else NOT_MEASURED,
    "break-even, reuses": lambda row: _reuses(row.reuses),
}


def values(row: Row) -> dict[str, Any]:
    """A row's numbers for CSV: seconds, bytes, F1 times 100; empty where nothing was measured."""
    flat: dict[str, Any] = {"method": row.method, "examples": row.examples, "errors": row.errors}
    intervals = {"f1": row.f1, "micro_f1": row.micro, "exact": row.exact, "ttft_warm": row.warm, "ttft_cold": row.cold}
    for name, interval in intervals.items():
        flat |= _flat(name, interval)
    for name, difference in {"f1_to_full": row.full, "f1_to_template": row.template, "ttft_to_full": row.ratio}.items():
        flat |= _flat(name, difference.interval if difference else None)
        flat[f"{name}_against"] = difference.against if difference else None
        flat[f"{name}_distinguishable"] = difference.distinguishable if difference else None
    alone = {"document_bytes": row.document_bytes, "compile_seconds": row.compile_seconds, "break_even": row.reuses}
    return flat | alone


def _flat(name: str, interval: Interval | None) -> dict[str, float | None]:
    parts = (interval.value, interval.low, interval.high) if interval else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), parts, strict=True))
