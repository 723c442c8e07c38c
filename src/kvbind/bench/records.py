"""What a run leaves in its folder: its configuration, one record for each example and method, and compile costs."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbind.errors import BenchError
from kvbind.files import write_file

CONFIG, RECORDS, COSTS = "run.json", "run.jsonl", "compile.jsonl"
SHOWN_CHARACTERS = 40

Record = dict[str, Any]
CostName = tuple[str, str, str, str]


@dataclass(frozen=True)
class Run:
    """A run as it was recorded so far: records of whole examples, and compile costs of documents."""

    folder: Path
    config: Record
    records: list[Record]
    costs: list[Record]


def read_run(folder: Path) -> Run:
    """The run in a folder; raises BenchError where there is none, or a line cannot be read."""
    file = folder / CONFIG
    if not file.is_file():
        raise BenchError(f"{folder} holds no run: make one with `kvbind bench run --out {folder}`")
    try:
        config: Record = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise BenchError(f"{file} is damaged: delete {folder} and run again") from error
    records = _whole_examples(_read(folder / RECORDS), len(config["methods"]))
    return Run(folder, config, records, _read(folder / COSTS))


class Journal:
    """A run's folder while it is written; one that holds the same run already is gone on with.

    The records of an example are appended when all its methods are done: of an example that was interrupted nothing is
    kept, and of a torn line neither. Raises BenchError if the folder holds another run.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        _settle(folder, json.loads(json.dumps(config)))
        run = read_run(folder)
        self.records = run.records
        self.costs = {cost_name(cost) for cost in run.costs}
        _rewrite(folder / RECORDS, run.records)
        _rewrite(folder / COSTS, run.costs)

    @property
    def done(self) -> set[tuple[str, str]]:
        """Task and example of everything recorded."""
        return set(map(_place, self.records))

    def append(self, records: Iterable[Record]) -> None:
        """Record one example."""
        added = list(records)
        _append(self.folder / RECORDS, added)
        self.records += added

    def append_cost(self, cost: Record) -> None:
        """Record what compiling one document in one representation took, its passages or one kind of companions."""
        _append(self.folder / COSTS, [cost])
        self.costs.add(cost_name(cost))


def cost_name(cost: Mapping[str, Any]) -> CostName:
    """What a compile cost belongs to: document, write, representation, and companion ("": the passages themselves)."""
    return cost["document"], cost["write"], cost["shown"], cost.get("companion", "")


def _settle(folder: Path, config: Record) -> None:
    """Write the configuration, or compare it with the one that is there."""
    file = folder / CONFIG
    if not file.is_file():
        if (folder / RECORDS).exists():
            raise BenchError(f"{folder} holds records without their {CONFIG}: choose another --out")
        write_file(file, [json.dumps(config, ensure_ascii=False, indent=2).encode()])
        return
    known = read_run(folder).config
    names = [name for name in {**known, **config} if known.get(name) != config.get(name)]
    if names:
        differing = ", ".join(_difference(name, known.get(name), config.get(name)) for name in names)
        raise BenchError(f"{folder} holds another run (other {differing}): choose another --out, or the same settings")


def _difference(name: str, there: Any, here: Any) -> str:
    values = f"{json.dumps(there, ensure_ascii=False)} there, {json.dumps(here, ensure_ascii=False)} here"
    return f"{name}: {values}" if len(values) <= 2 * SHOWN_CHARACTERS else name


def _read(file: Path) -> list[Record]:
    """The records of a file; what stands after the last line break was torn off, and is left out."""
    lines = file.read_bytes().split(b"\n")[:-1] if file.is_file() else []
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise BenchError(f"{file}, line {number} is damaged: delete that line, and run again") from error
    return records


def _whole_examples(records: list[Record], methods: int) -> list[Record]:
    count = Counter(map(_place, records))
    return [record for record in records if count[_place(record)] == methods]


def _place(record: Record) -> tuple[str, str]:
    return record["task"], record["example"]


def _line(record: Record) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def _rewrite(file: Path, records: list[Record]) -> None:
    content = b"".join(map(_line, records))
    if not file.is_file() or file.read_bytes() != content:
        write_file(file, [content])


def _append(file: Path, records: Iterable[Record]) -> None:
    with file.open("ab") as opened:
        for record in records:
            opened.write(_line(record))
            opened.flush()
        os.fsync(opened.fileno())
