"""Records in memory."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from kvbind.bank.recordfile import damaged, host_copy


class MemoryRecord:
    """A record in memory."""

    def __init__(self, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> None:
        self._key, self._tensors = key, tensors
        self.meta: Mapping[str, str] = {**meta, "key": key}

    def names(self) -> list[str]:
        """The names of the tensors."""
        return list(self._tensors)

    def tensor(self, name: str) -> Tensor:
        """One tensor, shared with the store."""
        if name not in self._tensors:
            raise damaged(self._key, f"it has no tensor {name!r}")
        return self._tensors[name]

    def part(self, name: str, index: int) -> Tensor:
        """One slice along dim 0 of a 4-D tensor, shared with the store."""
        tensor = self.tensor(name)
        if tensor.ndim != 4 or not 0 <= index < tensor.shape[0]:
            raise damaged(self._key, f"{name!r} has no part {index}")
        return tensor[index]

    def span(self, name: str, first: int, last: int) -> Tensor:
        """Some slices along dim 0 of a 4-D tensor, shared with the store."""
        tensor = self.tensor(name)
        if tensor.ndim != 4 or not 0 <= first < last <= tensor.shape[0]:
            raise damaged(self._key, f"{name!r} has no part {last - 1}")
        return tensor[first:last]

    @property
    def bytes(self) -> int:
        """The bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def close(self) -> None:
        """Nothing to close."""


class MemoryStore:
    """Records that live as long as the process; they have no checksums, for nothing lies between write and read."""

    in_memory = True

    def __init__(self) -> None:
        self._records: dict[str, MemoryRecord] = {}
        self._aside: list[tuple[str, MemoryRecord]] = []

    def put(self, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> int:
        """Copy the tensors into main memory, and return their bytes."""
        record = MemoryRecord(key, {name: host_copy(tensor).clone() for name, tensor in tensors.items()}, meta)
        self._records[key] = record
        return record.bytes

    def get(self, key: str) -> MemoryRecord | None:
        """The record, or None."""
        return self._records.get(key)

    def drop(self, key: str) -> bool:
        """Forget the record and its quarantined copies; false when there was nothing."""
        before = len(self._aside)
        self._aside = [(name, record) for name, record in self._aside if name != key]
        return self._records.pop(key, None) is not None or len(self._aside) < before

    def keys(self) -> Iterator[str]:
        """The keys of all records, sorted."""
        return iter(sorted(self._records))

    def size(self, key: str) -> int | None:
        """The record's bytes, or None."""
        record = self._records.get(key)
        return None if record is None else record.bytes

    def quarantine(self, key: str) -> None:
        """Keep the record, but no longer serve it."""
        record = self._records.pop(key, None)
        if record is not None:
            self._aside.append((key, record))

    def quarantined(self) -> list[str]:
        """The keys of quarantined records, one for each copy."""
        return [key for key, _ in self._aside]
