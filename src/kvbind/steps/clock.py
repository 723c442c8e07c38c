"""One stopwatch around every step, so that all methods are timed alike."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

# The steps whose sum is the time to first token; preparing a page's pixels for the full-prefill baseline is not one,
# since the papers' TTFT begins with visual encoding.
TTFT_STEPS = ("plan", "fetch", "stitch", "select", "read")


@dataclass
class Stopwatch:
    """Seconds per step, measured between device synchronisations."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Add the time of the block to step `name`."""
        self._synchronize()
        start = time.perf_counter()
        try:
            yield
        finally:
            self._synchronize()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    @property
    def ttft(self) -> float:
        """Time to first token in seconds: plan, fetch, stitch, select and read."""
        return sum(self.seconds.get(name, 0.0) for name in TTFT_STEPS)

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
