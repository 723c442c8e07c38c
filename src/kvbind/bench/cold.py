"""Cold and warm requests: records out of the hot tier and the operating system's page cache, and back in memory."""

import ctypes
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvbind.bank import Bank
from kvbind.bank.store import DirectoryStore

DROPPED = (
    "the bank's hot tier emptied, the records' files synced and dropped from the page cache with "
    "posix_fadvise(POSIX_FADV_DONTNEED), and mincore finds no page of them in memory"
)
IN_MEMORY = "the bank is in memory: nothing is read from a disk"
NO_CALL = "this system has no posix_fadvise to drop files from the page cache"
STILL_THERE = "the files stay in the page cache after posix_fadvise: a file system in memory, or another reader"


@dataclass(frozen=True)
class Cold:
    """Whether records are out of memory now, and how they came to be, or why not."""

    reached: bool
    how: str


def chill(bank: Bank, keys: Iterable[str]) -> Cold:
    """Forget all hot passages, and have the records of `keys` read from the disk next time, where that can be done."""
    store = bank.store
    if not isinstance(store, DirectoryStore):
        return Cold(False, IN_MEMORY)
    if not hasattr(os, "posix_fadvise"):
        return Cold(False, NO_CALL)
    bank.passages.hot.clear()
    cached = sum(_drop(file) for file in map(store.file, keys) if file.is_file())
    return Cold(False, STILL_THERE) if cached else Cold(True, DROPPED)


def heat(bank: Bank, keys: Iterable[str]) -> str:
    """Read the records of `keys`, so that they are in memory; returns where: the bank itself, its hot tier, or files
    in the page cache, if one of them does not fit.
    """
    wanted = list(keys)
    for key in wanted:
        bank.get(key)
    if not isinstance(bank.store, DirectoryStore):
        return "a bank in memory"
    return "the bank's hot tier" if all(bank.passages.hot.get(key) for key in wanted) else "the page cache"


def _drop(file: Path) -> int:
    """Drop a file's pages; returns how many are in memory still."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)  # only pages that are on the disk can be dropped
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return cached_pages(handle)
    finally:
        os.close(handle)


def cached_pages(handle: int) -> int:
    """How many pages of an open file, which is not empty, the page cache holds; mapping it reads none."""
    size = os.fstat(handle).st_size
    flags = np.empty(-(-size // mmap.PAGESIZE), np.uint8)
    with mmap.mmap(handle, size, prot=mmap.PROT_READ) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        place, target = ctypes.c_void_p(view.ctypes.data), ctypes.c_void_p(flags.ctypes.data)
        code = ctypes.CDLL(None).mincore(place, ctypes.c_size_t(size), target)
        del view  # a mapping that is still looked at cannot be closed
    return len(flags) if code else int((flags & 1).sum())  # what is not known is not cold
