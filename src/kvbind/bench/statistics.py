"""Bootstrap intervals: of a task's mean, of a mean over tasks, and of differences between methods, always paired."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Columns = NDArray[np.float64]
Statistic = Callable[[Columns], Columns]

RESAMPLES = 10_000
SEED = 0
LEVEL = 95.0
AT_ONCE = 1_000  # resamples in double precision
# With fewer examples, all of them pointing one way still happens by chance in more than 5 % of cases (2 · 2⁻⁵).
FEWEST = 6
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Interval:
    """A statistic of `examples` examples, and its bootstrap interval (95 %) from `low` to `high`.

    `fewest` are the examples of the task that has the fewest.
    """

    value: float
    low: float
    high: float
    examples: int
    fewest: int

    def excludes(self, value: float) -> bool:
        """Whether the interval does not hold `value`, and rests on enough examples of each task to say so."""
        outside = self.low > value + TOLERANCE or self.high < value - TOLERANCE
        return self.fewest >= FEWEST and outside


def mean(columns: Columns) -> Columns:
    """The first column of (..., C): the statistic of plain means."""
    first: Columns = columns[..., 0]
    return first


def micro_f1(columns: Columns) -> Columns:
    """Corpus micro-F1, 0 to 1, of true positives, false positives and false negatives (..., 3), or of their means."""
    true, false, missed = np.moveaxis(columns, -1, 0)
    total = 2 * true + false + missed
    f1: Columns = np.divide(2 * true, total, out=np.zeros_like(total), where=total > 0)
    return f1


def bootstrap(tasks: Sequence[Columns], statistic: Statistic = mean, level: float = LEVEL) -> Interval | None:
    """A statistic of the examples' means, averaged over tasks, with its percentile interval; None without examples.

    Each task's `columns` are (N, C). Of its examples N - 1 are drawn with replacement, whole rows at a time, so that
    what stands in one row stays paired; with N the intervals of few examples would be too narrow (Rao and Wu 1988).
    """
    if not tasks or not all(len(columns) for columns in tasks):
        return None
    value = np.mean([statistic(columns.mean(0)) for columns in tasks])
    drawn = np.mean([_resample(columns, statistic, place) for place, columns in enumerate(tasks)], axis=0)
    low, high = np.percentile(drawn, [50 - level / 2, 50 + level / 2])
    sizes = [len(columns) for columns in tasks]
    return Interval(float(value), float(low), float(high), sum(sizes), min(sizes))


def _resample(columns: Columns, statistic: Statistic, place: int) -> Columns:
    """The statistic of every resample (RESAMPLES,)."""
    times = _draws(len(columns), place)
    parts = range(0, RESAMPLES, AT_ONCE)
    means = [times[start : start + AT_ONCE].astype(np.float64) @ columns / _drawn(len(columns)) for start in parts]
    return statistic(np.concatenate(means))


@lru_cache(maxsize=8)
def _draws(count: int, place: int) -> NDArray[np.uint16]:
    """How often each of `count` examples is in each resample (RESAMPLES, count); tasks draw apart from each other."""
    drawn = np.random.default_rng([SEED, count, place]).integers(count, size=(RESAMPLES, _drawn(count)))
    return np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.uint16)


def _drawn(count: int) -> int:
    """The examples of one resample."""
    return max(1, count - 1)
