"""Figures over what examples differ in: the answer's place, and the number of documents."""

from collections.abc import Callable, Sequence

from kvbind.bench.groups import Group
from kvbind.bench.panels import F1, TTFT, Figure, Panel, Point, Series, figure
from kvbind.bench.records import Record
from kvbind.bench.statistics import bootstrap
from kvbind.bench.tables import columns, warm_ttft

TITLE = "all tasks"
MOST_PLACES = 12  # with more documents than this, a place is a share of the prompt
FIFTHS = 5
MOST_COUNTS = 8


def positions(group: Group) -> Figure:
    """F1 by the place of each document that holds the answer."""
    known = [record for record in _records(group) if record["gold"]]
    counts = {len(record["documents"]) for record in known}
    exact = len(counts) == 1 and max(counts) <= MOST_PLACES

    def places(record: Record) -> list[float]:
        if exact:
            return [gold + 1 for gold in record["gold"]]
        count = len(record["documents"])
        return [(gold * FIFTHS // count + 0.5) * 100 / FIFTHS for gold in record["gold"]]

    x = "place of a document that holds the answer" if exact else "place of the answer's document, % of all documents"
    series = _binned(group, places, lambda record: 100 * record["f1"])
    panel = Panel(TITLE, x, F1, series, ticks=_ticks(series))
    missing = "" if known else "no example says which of its documents hold the answer"
    return figure("positions", "F1 by the place of the answer", [panel], missing)


def documents(group: Group) -> Figure:
    """TTFT by the number of documents."""
    counts = {len(record["documents"]) for record in _records(group)}
    few = len(counts) <= MOST_COUNTS

    def places(record: Record) -> list[float]:
        count = len(record["documents"])
        return [count if few else 2 ** (count.bit_length() - 1)]

    x = "documents" if few else "documents, from this number up to its double"
    series = _binned(group, places, lambda record: 1000 * warm_ttft(record))
    missing = "all examples have equally many documents" if len(counts) == 1 else ""
    panel = Panel(TITLE, x, TTFT, series, log_x=not few, log_y=True, ticks=_ticks(series))
    return figure("documents", "Time to first token by number of documents", [panel], missing)


def _ticks(series: Sequence[Series]) -> list[float]:
    return sorted({point.x for one in series for point in one.points})


def _records(group: Group) -> list[Record]:
    return [record for measured in group.records.values() for record in measured.values()]


def _binned(
    group: Group, places: Callable[[Record], Sequence[float]], value: Callable[[Record], float]
) -> list[Series]:
    """The mean value at each place, by method, over all tasks."""
    series = []
    for number, method in enumerate(group.methods):
        found: dict[float, list[list[float]]] = {}
        for record in _records(group):
            for place in places(record) if record["method"] == method else ():
                found.setdefault(place, []).append([value(record)])
        points = [(place, bootstrap([columns(found[place])])) for place in sorted(found)]
        if points:
            series.append(Series(method, number, [Point(place, mean) for place, mean in points if mean is not None]))
    return series
