"""Passages by key: read whole and verified, the hot ones kept in memory, damaged ones put aside."""

import threading
from collections.abc import Iterable

from kvbind.bank.codec import passage_meta, passage_tensors, read_passage
from kvbind.bank.hot import HotTier
from kvbind.bank.store import Record, Store
from kvbind.errors import DamagedRecordError
from kvbind.types import Passage


class Passages:
    """The records of a store as passages; it knows nothing of documents.

    `hits` and `misses` count calls of `get`, and `damage` has a line for every damaged record that was met.
    """

    def __init__(self, store: Store, hot_bytes: int) -> None:
        self.store, self.hot = store, HotTier(hot_bytes)
        self.damage: list[str] = []
        self.hits = self.misses = 0
        self._lock = threading.Lock()

    def put(self, passage: Passage) -> int:
        """Store a passage unless it is there, and return its record's bytes; raises BankError."""
        size = self.store.size(passage.key)
        if size is None:
            size = self.store.put(passage.key, passage_tensors(passage), passage_meta(passage))
        return size

    def get(self, key: str) -> Passage | None:
        """A passage, verified whole, or None."""
        # Asked even for a hot passage: another process may have removed it, and removed is removed.
        passage = self.hot.get(key) if self.has(key) else None
        if passage is None:
            passage = self._read(key)
            if passage is not None:
                self.hot.put(passage)
            if not self.has(key):  # removed while it was read
                self.hot.drop(key)
        with self._lock:
            self.hits += passage is not None
            self.misses += passage is None
        return passage

    def peek(self, key: str) -> Passage | None:
        """A passage whose keys and values may still lie in its record, to be read layer by layer, or None."""
        if self.hot.has(key) or self.store.in_memory:
            return self.get(key)
        record = self.open(key)
        passage = None if record is None else self._decoded(key, record, lazily=True)
        with self._lock:
            self.hits += passage is not None
            self.misses += passage is None
        return passage

    def warm(self, passage: Passage, epoch: int) -> None:
        """Keep a passage that was read layer by layer in the hot tier, unless it, or all, was removed meanwhile."""
        self.hot.put(passage, epoch)
        if not self.has(passage.key):
            self.hot.drop(passage.key)

    def _read(self, key: str) -> Passage | None:
        self.hot.drop(key)
        record = self.open(key)
        if record is None:
            return None
        try:
            return self._decoded(key, record)
        finally:
            record.close()

    def _decoded(self, key: str, record: Record, *, lazily: bool = False) -> Passage | None:
        try:
            return read_passage(record, lazily=lazily)
        except DamagedRecordError as error:
            self.put_aside(key, error)
            return None

    def has(self, key: str) -> bool:
        """Whether a record is there; it is not read."""
        return self.store.size(key) is not None

    def open(self, key: str) -> Record | None:
        """A record to be read in parts, or None."""
        try:
            return self.store.get(key)
        except DamagedRecordError as error:
            self.put_aside(key, error)
            return None

    def put_aside(self, key: str, error: DamagedRecordError) -> None:
        """Never serve a record again."""
        self.hot.drop(key)
        self.store.quarantine(key)
        self.damage.append(error.finding)

    def drop(self, keys: Iterable[str]) -> int:
        """Delete records, and return their bytes."""
        freed = 0
        for key in keys:
            self.hot.drop(key)
            freed += self.store.size(key) or 0
            self.store.drop(key)
            self.hot.drop(key)  # again: it may have been put there in between
        return freed
