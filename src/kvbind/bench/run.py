"""A run: every example of every task by every method, each recorded as soon as it is done."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from kvbind.bank import Bank
from kvbind.bench.describe import configuration, describe
from kvbind.bench.example import Example, Task
from kvbind.bench.measure import Bench, measure
from kvbind.bench.records import Journal, Record
from kvbind.engine import Engine
from kvbind.errors import BenchError, KvbindError
from kvbind.methods import Method

REPEATS = 3


@dataclass(frozen=True)
class Options:
    """Methods by their spelling, how many warm requests are timed for each, and what else tells runs apart.

    `n` examples of each task (None: all) were drawn with `seed`. `forget`: a document leaves the bank, with its
    passages, when no further example shows it.
    """

    methods: tuple[str, ...]
    n: int | None = None
    seed: int = 0
    repeats: int = REPEATS
    forget: bool = False

    def __post_init__(self) -> None:
        if not self.methods or self.repeats < 1:
            raise BenchError(f"{len(self.methods)} methods, {self.repeats} repeats: give at least one of each")


@dataclass(frozen=True)
class Progress:
    """How many examples are recorded, of how many, and which is asked now."""

    done: int
    total: int
    task: str = ""
    example: str = ""


def run(
    engine: Engine,
    tasks: Sequence[Task],
    options: Options,
    folder: Path,
    progress: Callable[[Progress], None] | None = None,
) -> list[Record]:
    """Ask whatever the folder has no record of yet, and return all records.

    Interrupt it at any time: the same call goes on with the example that was being asked. Raises BenchError if the
    folder holds another run, MethodError, ModelError, and BankError if the bank fails.
    """
    engine.weigh = False  # a method is measured as it is, also where it does not pay
    methods = {spelling: engine.method(spelling) for spelling in options.methods}
    pairs = _pairs(tasks)
    drawn = {"n": options.n, "seed": options.seed, "repeats": options.repeats}
    journal = Journal(folder, {**configuration(engine, tasks, methods), **drawn})
    bench = Bench(engine, journal, methods, options.repeats, options.seed)
    tell = progress or (lambda _: None)
    done = journal.done
    todo = [(task, example) for task, example in pairs if (task.name, example.id) not in done]
    if todo:
        _warm_up(engine, methods, todo[0][1])
    for number, (task, example) in enumerate(todo):
        tell(Progress(len(done) + number, len(pairs), task.name, example.id))
        trials = measure(bench, task, example)
        journal.append(describe(engine, task, example, trial) for trial in trials)
        if options.forget:
            _forget(engine.bank, example, [later for _, later in todo[number + 1 :]])
    tell(Progress(len(pairs), len(pairs)))
    return journal.records


def _forget(bank: Bank, example: Example, later: Sequence[Example]) -> None:
    """Remove an example's documents, but for those that later ones show."""
    needed = {document.id for one in later for document in one.documents}
    known = {name for name, _ in bank.document_digests()}
    bank.remove_all({document.id for document in example.documents} & known - needed)


def _pairs(tasks: Sequence[Task]) -> list[tuple[Task, Example]]:
    pairs = [(task, example) for task in tasks for example in task.examples]
    if not pairs:
        raise BenchError("there is no example to ask: name a task, and examples of it")
    seen = {(task.name, example.id) for task, example in pairs}
    if len(seen) < len(pairs):
        raise BenchError("two examples have the same task and id: records could not be told apart")
    return pairs


def _warm_up(engine: Engine, methods: Mapping[str, Method], example: Example) -> None:
    """Compile a document into a bank that is thrown away, so that no document's cost holds the first use of things."""
    scratch = Engine(engine.backbone, Bank.memory(), embedder=engine.library.embedder, page=engine.page)
    scratch.library.renderers = engine.library.renderers  # whose fonts are then loaded
    for method in methods.values():
        if method.write is not None:
            with suppress(KvbindError, MemoryError, torch.OutOfMemoryError):  # noted when it is measured
                scratch.compile(example.documents[:1], method)
