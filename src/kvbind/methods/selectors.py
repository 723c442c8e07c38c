"""Which reused rows a request computes anew: the selectors of EPIC, CacheBlend and QCFuse, as data.

Rows are numbers in the request's context. A selector is given the rows that may be computed anew, passage by passage:
soft rows are not among them, and neither is a passage that stands right after the head under which it was compiled,
for that one is exact.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from kvbind.errors import MethodError


@dataclass(frozen=True)
class Repairable:
    """The rows (n,) of one passage that may be computed anew, and the document they come from."""

    document: str
    rows: Tensor


Pick = Callable[[Sequence[Repairable], Tensor | None], Tensor]
"""From the passages, and the importance (size,) of every row of the context where it was probed, to rows (n,)."""


@dataclass(frozen=True)
class Probe:
    """A light reading of the question that tells which rows matter to it (QCFuse).

    Of each passage the `digest` share of its rows, its anchors, stands before the question; attention between the
    question so read and all keys of the critical `layers` is the rows' importance. No layers: those of the model's
    profile, or else its middle layer. `anchors`: "norm", the rows with the largest keys; "repeat", those that matter
    when the passage is repeated (KVzip), the first four always among them.
    """

    anchors: Literal["norm", "repeat"]
    digest: float
    layers: tuple[int, ...] = ()
    count: int = 1


@dataclass(frozen=True)
class Selector:
    """What is computed anew: the rows that `pick` chooses, from the first layer on.

    `probe`: what `pick` wants to know first. `shares`: before a layer, only this share of all repairable rows goes on,
    those whose values differ most from the stored ones; it is given the model's number of layers (CacheBlend).
    """

    pick: Pick
    probe: Probe | None = None
    shares: Callable[[int], Mapping[int, float]] = field(default=lambda layers: {})


def first_rows(passages: Sequence[Repairable], importance: Tensor | None = None, *, k: int) -> Tensor:
    """The first `k` rows of every passage (EPIC's LegoLink-k); MethodError where one has fewer."""
    for passage in passages:
        if len(passage.rows) < k:
            raise MethodError(
                f"epic:k={k}: document {passage.document} has a passage of {len(passage.rows)} rows: choose a smaller "
                "k, or compute it all with full"
            )
    return _joined([passage.rows[:k] for passage in passages])


def every_row(passages: Sequence[Repairable], importance: Tensor | None = None) -> Tensor:
    """All rows."""
    return _joined([passage.rows for passage in passages])


def most_important(passages: Sequence[Repairable], importance: Tensor | None, *, ratio: float) -> Tensor:
    """The share `ratio` of all rows, over all passages together, that are most important; ties go by place."""
    rows = every_row(passages)
    assert importance is not None
    return rows[largest(importance[rows], share_of(len(rows), ratio))]


def share_of(count: int, ratio: float) -> int:
    """How many of `count` rows a ratio stands for, rounded up."""
    return min(count, math.ceil(ratio * count - 1e-9))


def largest(values: Tensor, count: int) -> Tensor:
    """The places of the `count` largest of some values (n,), in order; ties go by place."""
    return values.sort(descending=True, stable=True).indices[:count].sort().values


def value_deviation(computed: Tensor, stored: Tensor) -> Tensor:
    """How far each row's values, now computed (B, H, R, D), lie from the stored ones: squared, summed (R,)."""
    return (computed.float() - stored.float()).square().sum(dim=(0, 1, 3))


def checked_share(name: str, value: float) -> float:
    """The value, if it is a share; MethodError else."""
    if not 0 <= value <= 1:
        raise MethodError(f"{name}={value} is not a share: give a number from 0 to 1")
    return value


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat(list(parts)) if parts else torch.empty(0, dtype=torch.long)
