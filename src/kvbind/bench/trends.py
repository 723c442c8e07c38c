"""Figures over what examples differ in: the answer's place, and the number of documents."""

from collections.abc import Callable, Sequence

from kvbind.bench.groups import Group
from kvbind.bench.panels import F1, TTFT, Figure, Panel, Point, Series, figure
from kvbind.bench.records import Record
from kvbind.bench.statistics import bootstrap
from kvbind.bench.tables import columns, warm_ttft

MOST_PLACES = 12  # with more documents than this, a place is a share of the prompt
FIFTHS = 5
MOST_COUNTS = 8


def positions(group: Group) -> Figure:
    """F1 by the place of each document that holds the answer, by task."""
    panels = [_positions(group, task) for task in group.tasks]
    known = any(record["gold"] for task in group.tasks for record in _records(group, task))
    missing = "" if known else "no example says which of its documents hold the answer"
    return figure("positions", "F1 by the place of the answer", panels, missing)


def _positions(group: Group, task: str) -> Panel:
    counts = {len(record["documents"]) for record in _records(group, task) if record["gold"]}
    exact = len(counts) == 1 and max(counts) <= MOST_PLACES

    def places(record: Record) -> list[float]:
        if exact:
            return [gold + 1 for gold in record["gold"]]
        count = len(record["documents"])
        fifths = {int((gold + 0.5) * FIFTHS / count) for gold in record["gold"]}
        return [(fifth + 0.5) * 100 / FIFTHS for fifth in sorted(fifths)]

    x = "place of a document that holds the answer" if exact else "place of the answer's document, % of all documents"
    series = _binned(group, task, places, lambda record: 100 * record["f1"])
    return Panel(task, x, F1, series, ticks=_ticks(series))


def documents(group: Group) -> Figure:
    """TTFT by the number of documents, by task."""
    counts = {task: {len(record["documents"]) for record in _records(group, task)} for task in group.tasks}
    panels = [_documents(group, task, found) for task, found in counts.items() if len(found) > 1]
    missing = "" if panels else "all examples of a task have equally many documents"
    return figure("documents", "Time to first token by number of documents", panels, missing)


def _documents(group: Group, task: str, counts: set[int]) -> Panel:
    few = len(counts) <= MOST_COUNTS

    def places(record: Record) -> list[float]:
        count = len(record["documents"])
        return [count if few else 2 ** (count.bit_length() - 1)]

    x = "documents" if few else "documents, from this number up to its double"
    series = _binned(group, task, places, lambda record: 1000 * warm_ttft(record))
    return Panel(task, x, TTFT, series, log_x=not few, log_y=True, ticks=_ticks(series))


def _ticks(series: Sequence[Series]) -> list[float]:
    return sorted({point.x for one in series for point in one.points})


def _records(group: Group, task: str) -> list[Record]:
    return [record for method in group.methods for record in group.answered(task, method).values()]


def _binned(
    group: Group, task: str, places: Callable[[Record], Sequence[float]], value: Callable[[Record], float]
) -> list[Series]:
    """The mean value at each place, by method."""
    series = []
    for number, method in enumerate(group.methods):
        found: dict[float, list[list[float]]] = {}
        for record in group.answered(task, method).values():
            for place in places(record):
                found.setdefault(place, []).append([value(record)])
        points = [(place, bootstrap([columns(found[place])])) for place in sorted(found)]
        if points:
            series.append(Series(method, number, [Point(place, mean) for place, mean in points if mean is not None]))
    return series
