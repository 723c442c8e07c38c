"""The numbers of a report: one row for each method, over one task or averaged over several."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kvbind.bench.groups import Group
from kvbind.bench.records import Record
from kvbind.bench.statistics import FEWEST, LEVEL, TOLERANCE, Columns, Interval, bootstrap, micro_f1

Field = Callable[[Record], Sequence[float]]


@dataclass(frozen=True)
class Difference:
    """How a method differs from another one, example by example, on `differing` of them.

    `null` is the value of no difference.
    """

    against: str
    interval: Interval
    differing: int
    null: float = 0.0

    @property
    def distinguishable(self) -> bool:
        """Whether it is more than noise."""
        return self.differing >= FEWEST and self.interval.excludes(self.null)


@dataclass(frozen=True)
class Row:
    """One method's numbers: quality times 100, seconds, bytes. None is what was not measured.

    `full` and `template` are differences of F1 to these methods, `ratio` is TTFT over that of full prefill, request by
    request. `reuses` pay for compiling; infinity stands for never.
    """

    method: str
    examples: int
    errors: int
    f1: Interval | None
    micro: Interval | None
    exact: Interval | None
    full: Difference | None
    template: Difference | None
    warm: Interval | None
    ratio: Difference | None
    cold: Interval | None
    document_bytes: float | None
    compile_seconds: float | None
    reuses: float | None


def rows(group: Group, tasks: Sequence[str], against: str | None = None) -> list[Row]:
    """A row for each method: a task's own numbers, or the means over several tasks.

    Quality, TTFT and break-even are set against full prefill of the same representation, or the method `against`.
    """
    return [_row(group, tasks, method, against or group.reference(method, "full")) for method in group.methods]


def _row(group: Group, tasks: Sequence[str], method: str, full: str | None) -> Row:
    return Row(
        method=method,
        examples=sum(len(group.answered(task, method)) for task in tasks),
        errors=sum(len(group.errors.get((task, method), {})) for task in tasks),
        f1=quality(group, tasks, method),
        micro=micro(group, tasks, method),
        exact=_over(group, tasks, method, lambda record: [100 * record["exact"]]),
        full=compare(group, tasks, method, full),
        template=compare(group, tasks, method, group.reference(method, "template")),
        warm=_over(group, tasks, method, lambda record: [warm_ttft(record)]),
        ratio=_ratio(group, tasks, method, full),
        cold=_over(group, tasks, method, lambda record: [record["ttft"]["cold"]], lambda r: bool(r["ttft"]["cold"])),
        document_bytes=document_bytes(group, tasks, method),
        compile_seconds=_mean(group.compile_seconds(name, method) for name in _documents(group, tasks, method)),
        reuses=break_even(group, tasks, method, full),
    )


def quality(group: Group, tasks: Sequence[str], method: str) -> Interval | None:
    """LongBench F1 times 100."""
    return _over(group, tasks, method, lambda record: [100 * record["f1"]])


def micro(group: Group, tasks: Sequence[str], method: str) -> Interval | None:
    """Corpus micro-F1 times 100."""
    return _over(group, tasks, method, lambda record: record["micro"], statistic=lambda c: 100 * micro_f1(c))


def warm_ttft(record: Record) -> float:
    """Mean TTFT of the requests whose passages were in memory."""
    times: list[float] = record["ttft"]["warm"]
    return sum(times) / len(times)


def columns(values: Iterable[Sequence[float]]) -> Columns:
    """Values of examples as columns (N, C)."""
    return np.array([list(row) for row in values], dtype=np.float64)


def _over(
    group: Group,
    tasks: Sequence[str],
    method: str,
    field: Field,
    known: Callable[[Record], bool] = lambda _: True,
    statistic: Callable[[Columns], Columns] | None = None,
) -> Interval | None:
    samples = [columns(field(r) for r in group.answered(task, method).values() if known(r)) for task in tasks]
    return bootstrap(samples, statistic) if statistic else bootstrap(samples)


def compare(
    group: Group, tasks: Sequence[str], method: str, other: str | None, level: float = LEVEL
) -> Difference | None:
    """How much better in points of F1 a method is than another one, with its interval of a level in percent."""
    return _paired(group, tasks, method, other, lambda mine, theirs: 100 * (mine["f1"] - theirs["f1"]), level=level)


def _ratio(group: Group, tasks: Sequence[str], method: str, other: str | None) -> Difference | None:
    return _paired(group, tasks, method, other, lambda mine, theirs: warm_ttft(mine) / warm_ttft(theirs), null=1.0)


def _paired(
    group: Group,
    tasks: Sequence[str],
    method: str,
    other: str | None,
    field: Callable[[Record, Record], float],
    *,
    null: float = 0.0,
    level: float = LEVEL,
) -> Difference | None:
    if other is None or other == method:
        return None
    found = [columns([field(*pair)] for pair in group.pairs(task, method, other)) for task in tasks]
    interval = bootstrap(found, level=level)
    differing = sum(int((abs(values - null) > TOLERANCE).sum()) for values in found)
    return Difference(other, interval, differing, null) if interval else None


def _documents(group: Group, tasks: Sequence[str], method: str) -> list[str]:
    if group.methods[method]["write"] is None:
        return []
    records = [record for task in tasks for record in group.answered(task, method).values()]
    return list(dict.fromkeys(document for record in records for document in record["documents"]))


def document_bytes(group: Group, tasks: Sequence[str], method: str) -> float | None:
    """Mean bytes that a document takes in the bank: passages in all representations of the method, and companions."""
    return _mean(group.document_bytes(document, method) for document in _documents(group, tasks, method))


def break_even(group: Group, tasks: Sequence[str], method: str, other: str | None) -> float | None:
    """After how many requests compiling has paid for itself: compile seconds of a request's documents over what a
    request saves against the method `other`; infinity where it saves nothing, None where one of them was not measured.
    """
    if other is None or group.methods[method]["write"] is None:
        return None
    means = []
    for task in tasks:
        pairs = [(_request_cost(group, mine, method), mine, full) for mine, full in group.pairs(task, method, other)]
        known = [(cost, warm_ttft(full) - warm_ttft(mine)) for cost, mine, full in pairs if cost is not None]
        if not known:
            return None
        means.append(np.mean(known, axis=0))
    compiling, saving = np.mean(means, axis=0)
    return float(compiling / saving) if saving > 0 else math.inf


def _request_cost(group: Group, record: Record, method: str) -> float | None:
    seconds = [group.compile_seconds(document, method) for document in dict.fromkeys(record["documents"])]
    known = [value for value in seconds if value is not None]
    return sum(known) if len(known) == len(seconds) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
