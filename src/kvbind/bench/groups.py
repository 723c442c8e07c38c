"""Runs, gathered for a report: those that differ in nothing but their tasks belong together."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvbind.bench.records import CostName, Record, Run, cost_name, read_run
from kvbind.errors import BenchError

# What runs may differ in and still be reported together.
OF_TASKS = ("tasks", "n", "seed")
Measured = Mapping[str, Record]
_FOLDERS = re.compile(r"(?<![^\s=])/[^\s,;:=]*/")


@dataclass(frozen=True)
class Group:
    """Runs of one model under the same conditions.

    `methods` and `tasks` are the runs' facts by spelling and name; `records` and `errors` hold, by task and method, the
    examples that were answered and those that could not be; `costs` are by what they belong to.
    """

    config: Record
    methods: Mapping[str, Record]
    tasks: Mapping[str, Record]
    records: Mapping[tuple[str, str], Measured]
    errors: Mapping[tuple[str, str], Measured]
    costs: Mapping[CostName, Record]

    def answered(self, task: str, method: str) -> Measured:
        """Records by example."""
        return self.records.get((task, method), {})

    def pairs(self, task: str, method: str, other: str) -> list[tuple[Record, Record]]:
        """The records of the examples that both methods answered."""
        mine, theirs = self.answered(task, method), self.answered(task, other)
        return [(record, theirs[example]) for example, record in mine.items() if example in theirs]

    def reference(self, method: str, name: str) -> str | None:
        """The method called `name` that shows what `method` shows; of several resolutions, the first there is."""
        for shown in self.methods[method]["shown"]:
            for spelling, facts in self.methods.items():
                if facts["name"] == name and facts["shown"] == [shown]:
                    return spelling
        return None

    def document_costs(self, document: str, method: str) -> list[Record] | None:
        """What compiling a document for a method cost: for each representation its passages, and their companions.

        None where some of it is not recorded.
        """
        facts = self.methods[method]
        found = [
            self.costs.get((document, facts["write"], shown, companion))
            for shown in facts["shown"]
            for companion in ("", *facts.get("companions", {}).get(shown, ()))
        ]
        known = [cost for cost in found if cost is not None]
        return known if len(known) == len(found) else None

    def compile_seconds(self, document: str, method: str) -> float | None:
        """Seconds that compiling a document for a method took; None where they were not measured."""
        return self._total(document, method, "seconds")

    def document_bytes(self, document: str, method: str) -> float | None:
        """Bytes of a document's records for a method; None where they were not measured."""
        return self._total(document, method, "bytes")

    def _total(self, document: str, method: str, what: str) -> float | None:
        costs = self.document_costs(document, method)
        if costs is None or any(cost[what] is None for cost in costs):
            return None
        return float(sum(cost[what] for cost in costs))


def gather(folders: Sequence[Path]) -> list[Group]:
    """The runs in folders, grouped, models side by side; raises BenchError for a task that a group would have twice.

    Files and folders are called by their names alone: where they lay is the business of who ran it, not of a report.
    """
    by_conditions: dict[str, list[Run]] = {}
    for run in map(read_run, folders):
        conditions = {name: value for name, value in run.config.items() if name not in OF_TASKS}
        by_conditions.setdefault(json.dumps(conditions, sort_keys=True), []).append(run)
    groups = [_group(runs) for runs in by_conditions.values()]
    if not any(group.records or group.errors for group in groups):
        raise BenchError("no example is recorded yet: run `kvbind bench run` first")
    return sorted(groups, key=lambda group: str(group.config["model"]))


def _group(runs: Sequence[Run]) -> Group:
    homes: dict[str, Path] = {}
    for run in runs:
        for task in run.config["tasks"]:
            if homes.setdefault(task["name"], run.folder) is not run.folder:
                raise BenchError(f"{task['name']} is in {homes[task['name']]} and in {run.folder}: report them apart")
    return joined(list(map(_brief, runs)))


def _brief(run: Run) -> Run:
    """The run with names for paths; of methods that would be called the same, each keeps its own."""
    short = {facts["spelling"]: _name(facts["spelling"]) for facts in run.config["methods"]}
    count = Counter(short.values())
    names = {spelling: name if count[name] == 1 else spelling for spelling, name in short.items()}
    config = {
        **run.config,
        "model": _name(str(run.config["model"])),
        "methods": [{**facts, "spelling": names[facts["spelling"]]} for facts in run.config["methods"]],
        "tasks": [{**task, "source": _name(task["source"])} for task in run.config["tasks"]],
    }
    records = [{**record, "method": names[record["method"]]} for record in run.records]
    return replace(run, config=config, records=records)


def _name(text: str) -> str:
    """A text without the folders of the absolute paths in it."""
    return _FOLDERS.sub("", text)


def joined(runs: Sequence[Run]) -> Group:
    """Runs as one group, each task's examples from all of them; of a document's costs one that was timed, if any."""
    records = [record for run in runs for record in run.records]
    costs = [cost for run in runs for cost in run.costs]
    return Group(
        config=runs[0].config,
        methods={facts["spelling"]: facts for run in runs for facts in run.config["methods"]},
        tasks={task["name"]: task for run in runs for task in run.config["tasks"]},
        records=_by_place(record for record in records if "error" not in record),
        errors=_by_place(record for record in records if "error" in record),
        costs={cost_name(cost): cost for cost in sorted(costs, key=lambda cost: cost["seconds"] is not None)},
    )


def comparable(group: Group) -> Group:
    """The group over the examples that all methods answered, so that none is measured on easier ones.

    A method that failed on more than half of a task's examples has no numbers there, and takes none from the others.
    """
    records = {}
    for task in group.tasks:
        measured = {method: group.answered(task, method) for method in group.methods}
        failed = {method: group.errors.get((task, method), {}) for method in group.methods}
        kept = {method: found for method, found in measured.items() if len(found) >= len(failed[method])}
        common = set.intersection(*(set(found) for found in kept.values())) if kept else set()
        for method, found in kept.items():
            records[task, method] = {example: record for example, record in found.items() if example in common}
    return replace(group, records=records)


def _by_place(records: Iterable[Record]) -> dict[tuple[str, str], dict[str, Record]]:
    placed: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        placed.setdefault((record["task"], record["method"]), {})[record["example"]] = record
    return placed
