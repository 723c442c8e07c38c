"""Files that are there whole or not at all."""

import os
import uuid
from collections.abc import Iterable
from pathlib import Path

Part = bytes | memoryview


def write_file(path: Path, parts: Iterable[Part]) -> int:
    """Write a file so that it is there whole or not at all, and return its bytes; raises OSError."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("xb") as file:
            written = sum(file.write(part) for part in parts)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return written


def sync_folder(folder: Path) -> None:
    """Make the folder's entries survive a power cut, where the system lets folders be opened."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
