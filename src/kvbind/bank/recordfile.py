"""One record as one safetensors file that knows its own checksums.

The file is read with ordinary file calls, not through a memory mapping: a mapped file that another process
truncates ends this one with a bus error, while a short read is merely a damaged record.
"""

import errno
import json
import math
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from kvbind.errors import BankError, DamagedRecordError
from kvbind.files import Part

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_CHECKSUMS, _HEADER = "kvbind.checksums", "kvbind.header"
_PREFIX = 8  # bytes of the little-endian header length


def damaged(key: str, why: str) -> DamagedRecordError:
    """The error for a record that must not be served."""
    return DamagedRecordError(key, why)


def host_copy(tensor: Tensor) -> Tensor:
    """The tensor without gradient, in main memory and contiguous; no copy where it is so already."""
    return tensor.detach().cpu().contiguous()


def _bytes_of(tensor: Tensor) -> memoryview:
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _slices(body: memoryview, shape: Sequence[int]) -> list[memoryview]:
    """The parts that have a checksum each: one for each layer (dim 0) of a 4-D tensor, else the whole."""
    if len(shape) != 4:
        return [body]
    size = body.nbytes // max(shape[0], 1)
    return [body[place * size : (place + 1) * size] for place in range(shape[0])]


def _header_checksum(header: Mapping[str, Any]) -> str:
    metadata = {name: value for name, value in header["__metadata__"].items() if name != _HEADER}
    text = json.dumps({**header, "__metadata__": metadata}, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(text.encode("ascii"))


def pack(key: str, tensors: Mapping[str, Tensor], meta: Mapping[str, str]) -> list[Part]:
    """The parts of a record's file in order: length and header, then each tensor's bytes (not copied)."""
    # The format allows no gaps, so wide elements come first to keep every tensor aligned.
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: dict[str, Any] = {}
    bodies: list[Part] = []
    checksums: dict[str, list[str]] = {}
    end = 0
    for name in order:
        tensor = host_copy(tensors[name])
        if tensor.dtype not in _DTYPE_NAMES:
            raise BankError(f"record {key}: cannot store {name!r} as {tensor.dtype}; use one of {', '.join(DTYPES)}")
        body = _bytes_of(tensor)
        begin, end = end, end + body.nbytes
        header[name] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        checksums[name] = [xxhash.xxh3_128_hexdigest(part) for part in _slices(body, tensor.shape)]
        bodies.append(body)
    header["__metadata__"] = {**meta, "key": key, _CHECKSUMS: json.dumps(checksums)}
    header["__metadata__"][_HEADER] = _header_checksum(header)
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(_PREFIX, "little") + text, *bodies]


def _check_entry(entry: Mapping[str, Any], checksums: Sequence[str]) -> None:
    """ValueError where a header contradicts itself."""
    (begin, end), shape = entry["data_offsets"], entry["shape"]
    size = math.prod(shape) * DTYPES[entry["dtype"]].itemsize
    if min([begin, *shape]) < 0 or end - begin != size or len(checksums) != (shape[0] if len(shape) == 4 else 1):
        raise ValueError("the header contradicts itself")


class RecordFile:
    """A record on disk, open for reading; every tensor, or part of one, is checked after its bytes were read.

    The open file keeps the record readable while another process drops or replaces it. Raises
    FileNotFoundError where there is none, and DamagedRecordError when the header or length is not as written.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._key = key
        self._file = path.open("rb", buffering=0)
        self._lock = threading.Lock()
        self._closer = weakref.finalize(self, self._file.close)
        try:
            self._entries, metadata = self._read_header()
            self._checksums: dict[str, list[str]] = json.loads(metadata[_CHECKSUMS])
            for name, entry in self._entries.items():
                _check_entry(entry, self._checksums[name])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged(key, "its header cannot be read") from error
        self.meta: Mapping[str, str] = {n: v for n, v in metadata.items() if n not in (_CHECKSUMS, _HEADER)}
        if metadata["key"] != key:
            raise damaged(key, f"its file holds record {metadata['key']}")

    def _read(self, offset: int, target: memoryview) -> None:
        done = 0
        try:
            with self._lock:
                self._file.seek(offset)
                while done < target.nbytes:
                    count = self._file.readinto(target[done:])
                    if not count:
                        raise damaged(self._key, "its file is too short")
                    done += count
        except OSError as error:
            if error.errno == errno.EIO:
                raise damaged(self._key, "the disk cannot read it") from error
            raise BankError(f"cannot read record {self._key} ({error.strerror}): check the disk, and retry") from error

    def _read_header(self) -> tuple[dict[str, Any], dict[str, str]]:
        size = os.fstat(self._file.fileno()).st_size
        prefix = bytearray(_PREFIX)
        self._read(0, memoryview(prefix))
        length = int.from_bytes(prefix, "little")
        if length > size - _PREFIX:
            raise damaged(self._key, "its file is too short")
        text = bytearray(length)
        self._read(_PREFIX, memoryview(text))
        header = json.loads(text)
        if _header_checksum(header) != header["__metadata__"][_HEADER]:
            raise damaged(self._key, "its header fails its checksum")
        metadata = header.pop("__metadata__")
        self._start = _PREFIX + length
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if size != self._start + end:
            raise damaged(self._key, f"its file has {size} bytes and should have {self._start + end}")
        return header, metadata

    def names(self) -> list[str]:
        """The names of the record's tensors, in the order in which they lie in the file."""
        return list(self._entries)

    def tensor(self, name: str) -> Tensor:
        """One tensor in memory of its own, read alone; raises DamagedRecordError."""
        entry = self._entry(name)
        return self._load(name, entry, entry["data_offsets"][0], entry["shape"], self._checksums[name])

    def part(self, name: str, index: int) -> Tensor:
        """One slice along dim 0 of a 4-D tensor, read and checked alone; raises DamagedRecordError."""
        return self.span(name, index, index + 1)[0]

    def span(self, name: str, first: int, last: int) -> Tensor:
        """Some slices along dim 0 of a 4-D tensor, read in one go and checked each; raises DamagedRecordError."""
        entry = self._entry(name)
        (begin, end), shape = entry["data_offsets"], entry["shape"]
        if len(shape) != 4 or not 0 <= first < last <= shape[0]:
            raise damaged(self._key, f"{name!r} has no part {last - 1}")
        begin += first * ((end - begin) // shape[0])
        return self._load(name, entry, begin, [last - first, *shape[1:]], self._checksums[name][first:last])

    def _entry(self, name: str) -> dict[str, Any]:
        if name not in self._entries:
            raise damaged(self._key, f"it has no tensor {name!r}")
        entry: dict[str, Any] = self._entries[name]
        return entry

    def _load(
        self, name: str, entry: Mapping[str, Any], begin: int, shape: Sequence[int], checksums: Sequence[str]
    ) -> Tensor:
        dtype = DTYPES[entry["dtype"]]
        size = math.prod(shape) * dtype.itemsize
        # NumPy asks for huge pages, torch does not; without them, touching the memory takes longer than reading it.
        raw = torch.from_numpy(np.empty(max(size, 1), np.uint8))[:size]
        body = _bytes_of(raw)
        self._read(self._start + begin, body)
        found = [xxhash.xxh3_128_hexdigest(part) for part in _slices(body, shape)]
        if found != checksums:
            raise damaged(self._key, f"{name!r} fails its checksum")
        return raw.view(dtype).reshape(shape)

    def close(self) -> None:
        """Close the file; also done when the record is no longer referenced."""
        self._closer()
