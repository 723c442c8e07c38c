"""Where records lie: what every store does, and the one with a file for each record. Policy is the bank's."""

import itertools
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor

from kvbind.bank.recordfile import RecordFile, pack
from kvbind.errors import BankError
from kvbind.files import sync_folder, write_file

_KEY = re.compile(r"[0-9a-z_-]{2,128}")
_SUFFIX = ".safetensors"
STALE_SECONDS = 3600


class Record(Protocol):
    """Named tensors and a few strings, readable one tensor, or one layer of a 4-D tensor, at a time."""

    meta: Mapping[str, str]

    def names(self) -> list[str]:
        """The names of the tensors."""

    def tensor(self, name: str) -> Tensor:
        """One tensor, as it was stored; raises DamagedRecordError. It is shared: do not write to it."""

    def part(self, name: str, index: int) -> Tensor:
        """One slice along dim 0 of a 4-D tensor (a layer's keys or values), read alone; as `tensor` else."""

    def span(self, name: str, first: int, last: int) -> Tensor:
        """Some slices along dim 0 of a 4-D tensor, from `first` up to, not including, `last`; as `tensor` else."""

    def close(self) -> None:
        """Let go of what the record holds open."""


class Store(Protocol):
    """Records by key. Keys are lower-case letters, digits, "-" and "_".

    `in_memory`: reading a record costs nothing, so there is nothing to gain from reading it in parts.
    """

    in_memory: bool

    def put(self, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> int:
        """Store a record, replacing one under the same key, and return its bytes; raises BankError."""

    def get(self, key: str) -> Record | None:
        """The record, or None; raises DamagedRecordError when it is not as written."""

    def drop(self, key: str) -> bool:
        """Delete the record and its quarantined copies; false when there was nothing."""

    def keys(self) -> Iterator[str]:
        """The keys of all records, sorted."""

    def size(self, key: str) -> int | None:
        """The record's bytes, or None where there is none; reads nothing."""

    def quarantine(self, key: str) -> None:
        """Put the record where it is kept but never served."""

    def quarantined(self) -> list[str]:
        """The keys of quarantined records, one for each copy."""


class DirectoryStore:
    """One safetensors file for each record, in passages/<first two characters>/ under `path`.

    A file appears whole or not at all, also after a power cut, and any number of processes may share the folder.
    Raises BankError when the folder cannot be made.
    """

    in_memory = False

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._passages, self._quarantine = self.path / "passages", self.path / "quarantine"
        self._lock = threading.Lock()
        try:
            self._passages.mkdir(parents=True, exist_ok=True)
            self._sweep()
        except OSError as error:
            raise BankError(f"cannot open the bank {self.path} ({error.strerror}): check its permissions") from error

    def _sweep(self) -> None:
        """Remove what writers that were killed left half-written; younger files may still be written."""
        oldest = time.time() - STALE_SECONDS
        for file in self._passages.glob("*/.*.tmp"):
            try:
                if file.stat().st_mtime < oldest:
                    file.unlink()
            except FileNotFoundError:  # another process sweeps too
                continue

    def file(self, key: str) -> Path:
        """Where the record lies, or would lie; BankError if that cannot be a key."""
        if not _KEY.fullmatch(key):
            raise BankError(f"{key!r} cannot be a record's key: use content_key()")
        return self._passages / key[:2] / f"{key}{_SUFFIX}"

    def put(self, key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> int:
        """Write the record's file durably, and return its bytes; raises BankError and then leaves no trace."""
        file = self.file(key)
        parts = pack(key, tensors, meta)
        try:
            if not file.parent.is_dir():
                file.parent.mkdir(parents=True, exist_ok=True)
                sync_folder(self._passages)
            return write_file(file, parts)
        except OSError as error:
            raise BankError(
                f"cannot write {file} ({error.strerror}): free some space or choose another bank; "
                "what was stored before is untouched"
            ) from error

    def get(self, key: str) -> Record | None:
        """The record with its header checked, or None; raises DamagedRecordError, or BankError if unreadable."""
        file = self.file(key)
        try:
            return RecordFile(file, key)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BankError(f"cannot read {file} ({error.strerror}): check its permissions") from error

    def drop(self, key: str) -> bool:
        """Delete the record's file and its quarantined copies; false when there was nothing."""
        found = False
        for file in [self.file(key), *self._quarantine.glob(f"{key}{_SUFFIX}*")]:
            try:
                file.unlink()
                found = True
            except FileNotFoundError:
                continue
            except OSError as error:
                raise BankError(f"cannot delete {file} ({error.strerror}): check its permissions") from error
        return found

    def keys(self) -> Iterator[str]:
        """The keys of all records, sorted."""
        for file in sorted(self._passages.glob(f"*/[!.]*{_SUFFIX}")):
            if file.name[:2] == file.parent.name:
                yield file.name.removesuffix(_SUFFIX)

    def size(self, key: str) -> int | None:
        """The bytes of the record's file, or None."""
        file = self.file(key)
        try:
            return file.stat().st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BankError(f"cannot read {file} ({error.strerror}): check its permissions") from error

    def quarantine(self, key: str) -> None:
        """Move the record's file to quarantine/, beside earlier copies; nothing to do if it is gone."""
        file = self.file(key)
        names = itertools.chain([file.name], (f"{file.name}.{n}" for n in itertools.count(1)))
        with self._lock:
            try:
                self._quarantine.mkdir(exist_ok=True)
                file.replace(next(t for name in names if not (t := self._quarantine / name).exists()))
            except FileNotFoundError:  # another process was first
                return
            except OSError as error:
                raise BankError(f"cannot put aside {file} ({error.strerror}): delete it by hand") from error

    def quarantined(self) -> list[str]:
        """The keys of quarantined records, one for each copy."""
        return sorted(file.name.split(_SUFFIX)[0] for file in self._quarantine.glob(f"*{_SUFFIX}*"))
