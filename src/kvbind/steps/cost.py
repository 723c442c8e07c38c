"""Whether loading and repairing passages beats computing everything: weighed per request, by what was measured."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from kvbind.methods import Method
from kvbind.models import Backbone
from kvbind.types import label

SMALL = 256
"""Requests of fewer rows are never computed whole instead: their times are mostly overhead and noise."""

MARGIN = 0.8
"""Computing everything must be expected to take less than this share of reuse, for estimates are rough."""

AGAIN = 8
"""Of so many requests for which reuse seems not worth it, one reuses: what was measured once may no longer hold."""

KNOWN = 2
"""How often something must have been measured before it counts."""


@dataclass(frozen=True)
class Decision:
    """What was chosen for a request, and why."""

    reuse: bool
    reason: str


@dataclass
class Mean:
    """A running mean in which the last measurements count most."""

    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """Take one more measurement in."""
        self.count += 1
        self.value += (value - self.value) / min(self.count, 5)


@dataclass(frozen=True)
class Request:
    """What a request comes to, in rows: those `before` it in the context, its own, of these the `fresh` and `reused`
    ones; and the bytes of passages that are still `unread`.
    """

    before: int
    rows: int
    fresh: int
    reused: int
    unread: int


@dataclass
class Speeds:
    """How fast this model computes and this bank is read, measured as requests run.

    `passes`: floating-point operations a second, by the binary logarithm of a pass's rows, since small passes are
    slow. `store`: bytes a second. By method (`cost_name`): `overhead`, the seconds a reused row takes besides, for
    fetching, stitching and selecting; `repaired`, the share of reused rows that are computed anew; `refused`, how often
    reuse was not worth it.
    """

    backbone: Backbone
    passes: dict[int, Mean] = field(default_factory=dict)
    store: Mean = field(default_factory=Mean)
    overhead: dict[str, Mean] = field(default_factory=dict)
    repaired: dict[str, Mean] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    def saw_pass(self, rows: float, size: int, seconds: float) -> None:
        """A pass over some rows of a context of `size` rows took so long."""
        if rows >= 1 and seconds > 0:
            speeds = self.passes.setdefault(round(math.log2(rows)), Mean())
            speeds.add(self._operations(rows, size) / seconds)

    def saw_reuse(self, method: str, seconds: Mapping[str, float], reused: int, repaired: float) -> None:
        """A request reused so many rows and computed some of them anew; `seconds` by step."""
        if reused:
            spent = sum(seconds.get(step, 0.0) for step in ("fetch", "stitch", "select"))
            self.overhead.setdefault(method, Mean()).add(spent / reused)
            self.repaired.setdefault(method, Mean()).add(repaired / reused)

    def pass_seconds(self, rows: float, size: int) -> float | None:
        """How long a pass will take, by the known speed of passes of about that size; None if none is known."""
        known = {place: mean for place, mean in self.passes.items() if mean.count >= KNOWN}
        if not known:
            return None
        nearest = min(known, key=lambda place: abs(place - math.log2(max(rows, 1))))
        return self._operations(rows, size) / known[nearest].value

    def plain(self) -> dict[str, Any]:
        """Everything measured, as JSON can hold it."""
        return {
            "passes": {str(place): astuple(mean) for place, mean in self.passes.items()},
            "store": astuple(self.store),
            "overhead": {name: astuple(mean) for name, mean in self.overhead.items()},
            "repaired": {name: astuple(mean) for name, mean in self.repaired.items()},
            "refused": self.refused,
        }

    @classmethod
    def read(cls, backbone: Backbone, plain: Any) -> "Speeds":
        """What `plain` gave; nothing is known if it is anything else."""
        try:
            passes = {int(place): Mean(*mean) for place, mean in plain["passes"].items()}
            overhead = {name: Mean(*mean) for name, mean in plain["overhead"].items()}
            repaired = {name: Mean(*mean) for name, mean in plain["repaired"].items()}
            return cls(backbone, passes, Mean(*plain["store"]), overhead, repaired, dict(plain["refused"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            return cls(backbone)

    def _operations(self, rows: float, size: int) -> float:
        layers, _, dim = self.backbone.shape
        heads = int(self.backbone.stack.config.num_attention_heads)
        return rows * (2.0 * self.backbone.layer_weights + 4.0 * layers * heads * dim * size)


def cost_name(method: Method) -> str:
    """A method with all that decides what it repairs: what one of them costs says nothing of another."""
    selector = method.selector
    if selector is None:
        return method.name
    given = [getattr(part, "keywords", {}) for part in (selector.pick, selector.shares)]
    compiled = [method.write.label if method.write else "", *map(label, method.representations)]
    return f"{method.name} {given} {selector.probe} {compiled}"


def decide(speeds: Speeds, method: str, request: Request) -> Decision:
    """Reuse what a request can, or compute all of it; every so often reuse all the same, to measure it again."""
    whole = speeds.pass_seconds(request.rows, request.before + request.rows)
    repaired = speeds.repaired.get(method, Mean())
    if request.rows < SMALL:
        return Decision(True, f"reuse: {request.rows} rows are too few to weigh")
    if whole is None or repaired.count < KNOWN or (request.unread and speeds.store.count < KNOWN):
        return Decision(True, "reuse: not enough was measured yet to weigh it against computing everything")
    load = request.unread / speeds.store.value if request.unread else 0.0
    anew = request.fresh + repaired.value * request.reused
    work = speeds.pass_seconds(anew, request.before + request.rows) or 0.0
    reuse = max(load, work) + speeds.overhead[method].value * request.reused
    told = f"loading {load * 1000:.0f} ms beside repair and question {work * 1000:.0f} ms"
    if whole >= MARGIN * reuse:
        return Decision(
            True, f"reuse: expected {reuse * 1e3:.0f} ms ({told}); computing everything {whole * 1e3:.0f} ms"
        )
    speeds.refused[method] = speeds.refused.get(method, 0) + 1
    if speeds.refused[method] % AGAIN == 0:
        return Decision(
            True, f"reuse: to measure it again; expected {reuse * 1e3:.0f} ms, all of it {whole * 1e3:.0f} ms"
        )
    return Decision(False, f"computed everything: expected {whole * 1e3:.0f} ms; reuse {reuse * 1e3:.0f} ms ({told})")
