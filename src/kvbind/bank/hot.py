"""Passages kept in memory, the least recently used leaving first."""

import threading
from collections import OrderedDict

from kvbind.bank.codec import passage_tensors
from kvbind.types import Passage


class HotTier:
    """Up to `capacity` bytes of passages; with 0 it keeps nothing. Safe for several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._passages: OrderedDict[str, tuple[Passage, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0
        self.epoch = 0  # how often it was cleared

    @property
    def capacity(self) -> int:
        """The most bytes it keeps."""
        return self._capacity

    def has(self, key: str) -> bool:
        """Whether the passage is there."""
        with self._lock:
            return key in self._passages

    def get(self, key: str) -> Passage | None:
        """The passage, which is now the most recently used one, or None."""
        with self._lock:
            if key not in self._passages:
                return None
            self._passages.move_to_end(key)
            return self._passages[key][0]

    def put(self, passage: Passage, epoch: int | None = None) -> None:
        """Keep the passage, unless it alone is larger than the tier; its tensors must be memory of their own.

        With an `epoch` it is not kept if the tier was cleared since.
        """
        size = sum(tensor.nbytes for tensor in passage_tensors(passage).values())
        if size > self._capacity:
            return
        with self._lock:
            if epoch is not None and epoch != self.epoch:
                return
            self._forget(passage.key)
            self._passages[passage.key] = (passage, size)
            self.bytes += size
            while self.bytes > self._capacity:
                self._forget(next(iter(self._passages)))

    def drop(self, key: str) -> None:
        """Forget the passage."""
        with self._lock:
            self._forget(key)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._passages.clear()
            self.bytes = 0
            self.epoch += 1

    def _forget(self, key: str) -> None:
        _, size = self._passages.pop(key, (None, 0))
        self.bytes -= size
