"""Whether loading and repairing passages beats computing everything: weighed per request, by what was measured."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

from kvbind.models import Backbone

SMALL = 256
"""Requests of fewer rows are never computed whole instead: their times are mostly overhead and noise."""

MARGIN = 0.8
"""Computing everything must be expected to take less than this share of reuse, for estimates are rough."""

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


@dataclass
class Speeds:
    """How fast this model computes and this bank is read, measured as requests run.

    `passes`: floating-point operations a second, by the binary logarithm of a pass's rows, since small passes are
    slow. `store`: bytes a second. `overhead`: seconds a reused row takes besides, for planning and stitching.
    `repaired`: the share of reused rows that a method computes anew, by its name.
    """

    backbone: Backbone
    passes: dict[int, Mean] = field(default_factory=dict)
    store: Mean = field(default_factory=Mean)
    overhead: Mean = field(default_factory=Mean)
    repaired: dict[str, Mean] = field(default_factory=dict)

    def saw_pass(self, rows: float, size: int, seconds: float) -> None:
        """A pass over some rows of a context of `size` rows took so long."""
        if rows >= 1 and seconds > 0:
            speeds = self.passes.setdefault(round(math.log2(rows)), Mean())
            speeds.add(self._operations(rows, size) / seconds)

    def saw_reuse(self, method: str, seconds: Mapping[str, float], reused: int, repaired: float) -> None:
        """A request reused so many rows and computed some of them anew; `seconds` by step."""
        if reused:
            spent = sum(seconds.get(step, 0.0) for step in ("fetch", "stitch", "select"))
            self.overhead.add(spent / reused)
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
            "overhead": astuple(self.overhead),
            "repaired": {name: astuple(mean) for name, mean in self.repaired.items()},
        }

    @classmethod
    def read(cls, backbone: Backbone, plain: Mapping[str, Any]) -> "Speeds":
        """What `plain` gave."""
        passes = {int(place): Mean(*mean) for place, mean in plain.get("passes", {}).items()}
        repaired = {name: Mean(*mean) for name, mean in plain.get("repaired", {}).items()}
        return cls(backbone, passes, Mean(*plain.get("store", ())), Mean(*plain.get("overhead", ())), repaired)

    def _operations(self, rows: float, size: int) -> float:
        layers, _, dim = self.backbone.shape
        heads = int(self.backbone.stack.config.num_attention_heads)
        return rows * (2.0 * self.backbone.layer_weights + 4.0 * layers * heads * dim * size)


def decide(speeds: Speeds, method: str, *, rows: int, fresh: int, reused: int, unread: int) -> Decision:
    """Reuse, or compute all `rows` of a request: `reused` come from passages, `unread` bytes of them from the store."""
    whole = speeds.pass_seconds(rows, rows)
    repaired = speeds.repaired.get(method, Mean())
    if rows < SMALL:
        return Decision(True, f"reuse: {rows} rows are too few to weigh")
    if whole is None or repaired.count < KNOWN or (unread and speeds.store.count < KNOWN):
        return Decision(True, "reuse: not enough was measured yet to weigh it against computing everything")
    load = unread / speeds.store.value if unread else 0.0
    work = speeds.pass_seconds(fresh + repaired.value * reused, rows) or 0.0
    reuse = max(load, work) + speeds.overhead.value * reused
    told = f"loading {load * 1000:.0f} ms beside repair and question {work * 1000:.0f} ms"
    if whole < MARGIN * reuse:
        return Decision(
            False, f"computed everything: expected {whole * 1000:.0f} ms; reuse {reuse * 1000:.0f} ms ({told})"
        )
    return Decision(True, f"reuse: expected {reuse * 1000:.0f} ms ({told}); computing everything {whole * 1000:.0f} ms")
