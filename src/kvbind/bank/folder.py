"""What makes a folder a bank: a small file with the bank's format."""

import json
from pathlib import Path

from kvbind.bank.keys import FORMAT
from kvbind.errors import BankError
from kvbind.files import write_file

MARKER, CATALOGUE = "bank.json", "catalogue.sqlite"


def open_folder(path: Path, create: bool) -> None:
    """Check that `path` is a bank that this version can read, or with `create` make it one; raises BankError."""
    try:
        if (path / MARKER).is_file():
            _check_format(path / MARKER)
        elif (path / CATALOGUE).is_file():
            _write_marker(path)
        else:
            _make(path, create)
    except OSError as error:
        raise BankError(f"cannot open the bank {path} ({error.strerror}): check its permissions") from error


def _check_format(marker: Path) -> None:
    try:
        version = int(json.loads(marker.read_text("utf-8"))["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise BankError(f"{marker} is damaged: write {json.dumps({'format': FORMAT})} into it") from error
    if version > FORMAT:
        raise BankError(
            f"the bank {marker.parent} has format {version}, newer than this kvbind's {FORMAT}: "
            "upgrade kvbind or choose another bank"
        )


def _make(path: Path, create: bool) -> None:
    if path.exists() and not path.is_dir():
        raise BankError(f"{path} is a file, not a bank: choose a folder")
    # Another process may be making the same bank right now: its half-written marker does not count.
    if path.is_dir() and any(not entry.name.startswith(f".{MARKER}.") for entry in path.iterdir()):
        if (path / MARKER).is_file():
            return
        raise BankError(f"{path} is not a bank and not empty: choose an empty folder or a new one")
    if not create:
        raise BankError(f"no bank at {path}: make one with `kvbind compile`")
    path.mkdir(parents=True, exist_ok=True)
    _write_marker(path)


def _write_marker(path: Path) -> None:
    write_file(path / MARKER, [json.dumps({"format": FORMAT}).encode("ascii")])
