"""Records from data files: found, read with their places, chosen by a seed."""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from kvbind.bench.tasks.options import TaskOptions
from kvbind.errors import BenchError

T = TypeVar("T")
_KINDS: dict[type, str] = {str: "a string", list: "a list", dict: "an object"}


@dataclass(frozen=True)
class Record:
    """One JSON object and where it stands: the file, and its line or number."""

    place: str
    fields: dict[str, Any]

    def get(self, name: str, kind: type[T]) -> T:
        """A field of a kind; BenchError names the record and the field where it is missing or of another kind."""
        value = self.fields.get(name)
        if not isinstance(value, kind):
            found = "missing" if name not in self.fields else json.dumps(value)[:40]
            raise BenchError(f'{self.place}: "{name}" is {found}: expected {_KINDS[kind]}, is this the task\'s file?')
        return value

    def inner(self, name: str) -> "list[Record]":
        """The objects in a list, as records that stand in the same place."""
        return [Record(f"{self.place}, {name}", as_object(item, self.place)) for item in self.get(name, list)]


def find(task: str, options: TaskOptions, names: Sequence[str], source: str) -> Path:
    """The data file: the file given, or the first of `names` in the folder given.

    BenchError says what was looked for, and where the data comes from.
    """
    if options.data is None:
        raise BenchError(f"{task} needs data: get it from {source} and name the file, or the folder with {names[0]}")
    if not options.data.exists():
        raise BenchError(f"{options.data}: not found: check the path ({task} comes from {source})")
    if not options.data.is_dir():
        return options.data
    for name in names:
        if (options.data / name).exists():
            return options.data / name
    raise BenchError(f"{options.data} has no data for {task}, looked for {', '.join(names)}: get it from {source}")


def wanted(options: TaskOptions) -> int | None:
    """How many examples are asked for, None for all; BenchError below one."""
    if options.n is not None and options.n < 1:
        raise BenchError(f"n={options.n}: ask for one example or more")
    return options.n


def choose(task: str, options: TaskOptions, items: Sequence[T], where: object) -> list[T]:
    """The first `n` items in an order that only task and seed decide; BenchError if there are fewer."""
    if not items or len(items) < (wanted(options) or 0):
        asked = f"{options.n} are asked for: ask for fewer" if items else "none can be asked: is this the task's data?"
        raise BenchError(f"{where}: has {len(items)} examples of {task}, {asked}")
    order = list(range(len(items)))
    Random(f"{task}/{options.seed}").shuffle(order)
    return [items[number] for number in order[: options.n]]


def read_text(path: Path) -> str:
    """UTF-8 text of a file, unpacked if its name ends in .gz; BenchError if that cannot be."""
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BenchError(f"{path}: not UTF-8 text (from byte {error.start}): get the file anew") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BenchError(f"{path}: cannot be unpacked ({error}): get the file anew") from error
    except OSError as error:
        raise BenchError(f"{path}: cannot be read ({error.strerror}): check the path and its permissions") from error


def read_records(path: Path) -> list[Record]:
    """Records of a file: one JSON object a line (.jsonl, .jsonl.gz), or one JSON list of them."""
    text = read_text(path)
    if ".json" in path.suffixes:
        return list(_of_list(_loads(text, path, 1), path))
    lines = enumerate(text.split("\n"), 1)
    return [
        Record(f"{path}:{number}", as_object(_loads(line, path, number), f"{path}:{number}"))
        for number, line in lines
        if line.strip()
    ]


def as_object(value: Any, place: str) -> dict[str, Any]:
    """The value, which must be a JSON object."""
    if not isinstance(value, dict):
        raise BenchError(f"{place}: {json.dumps(value)[:40]} is not a JSON object: is this the task's file?")
    return value


def _of_list(value: Any, path: Path) -> Iterator[Record]:
    items: Iterable[Any] = value if isinstance(value, list) else [value]
    for number, item in enumerate(items, 1):
        place = f"{path}: record {number}"
        yield Record(place, as_object(item, place))


def _loads(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{path}:{line + error.lineno - 1}"
        raise BenchError(f"{where}: broken JSON ({error.msg} at column {error.colno}): get the file anew") from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of brackets
        raise BenchError(f"{path}:{line}: unusable JSON ({error}): get the file anew") from error
