"""One example, asked by every method: side by side, cold once and warm several times."""

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from kvbind.answer import Answer
from kvbind.bench.cold import Cold, chill, heat
from kvbind.bench.costs import companion_keys, prepare
from kvbind.bench.example import Example, Task
from kvbind.bench.records import Journal
from kvbind.engine import Engine
from kvbind.errors import BankError, KvbindError
from kvbind.methods import Method
from kvbind.steps.decode import Sampling
from kvbind.steps.plan import Message
from kvbind.types import Doc


@dataclass(frozen=True)
class Bench:
    """What all examples of a run share: methods by their spelling, how many warm requests are timed, and a seed.

    `ready` are the tasks and methods that have asked unmeasured in this process.
    """

    engine: Engine
    journal: Journal
    methods: Mapping[str, Method]
    repeats: int
    seed: int
    ready: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class Trial:
    """One method's requests over one example.

    `keys` are those of all passages it may take, `companions` those of what its repair reads beside them, `used` those
    of the passages that it took; `answer` is the first, whole one, which quality is measured on; `cold` says whether
    its records came from the disk, and `warm` holds the answers whose records were in memory, at `place`. `error` is
    why there are none.
    """

    spelling: str
    method: Method
    keys: tuple[str, ...] = ()
    companions: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    answer: Answer | None = None
    cold: Cold | None = None
    warm: list[Answer] = field(default_factory=list)
    place: str = ""
    error: str = ""

    @property
    def was_cold(self) -> bool:
        """Whether the first request read its records from the disk."""
        return self.cold is not None and self.cold.reached


def measure(bench: Bench, task: Task, example: Example) -> list[Trial]:
    """Compile what is missing, then ask in rounds: every method once, in an order drawn for the example.

    Drift of the machine so hits all methods alike. Where any of them was cold in the first round, that round counts as
    warm for none. Over a task's first example each method asks once unmeasured: the head is computed then, and the
    model's kernels are ready.
    """
    trials = [Trial(spelling, method) for spelling, method in bench.methods.items()]
    for trial in trials:
        with _noting(trial):
            trial.keys = prepare(bench.engine, bench.journal, example.documents, trial.method)
            trial.companions = companion_keys(bench.engine.bank, example.documents, trial.method)
            if (task.name, trial.spelling) not in bench.ready:
                _ask(bench, task, example, trial, 0)
                bench.ready.add((task.name, trial.spelling))
    order = list(trials)
    random.Random(f"{bench.seed}/{task.name}/{example.id}").shuffle(order)
    _round(bench, task, example, order)
    apart = any(trial.was_cold for trial in trials)
    for trial in order:
        trial.warm = [] if apart or trial.answer is None else [trial.answer]
    for _ in range(bench.repeats - (not apart)):
        _round(bench, task, example, order)
    return trials


def _round(bench: Bench, task: Task, example: Example, order: Iterable[Trial]) -> None:
    """One request of each method that has not failed."""
    for trial in order:
        with _noting(trial):
            if not trial.error and trial.answer is None:
                _first(bench, task, example, trial)
            elif not trial.error:
                _warm(bench, task, example, trial)


@contextmanager
def _noting(trial: Trial) -> Iterator[None]:
    """Note why an example is too much for a method; a bank that cannot be used any more ends the run."""
    try:
        yield
    except BankError:
        raise
    except (KvbindError, MemoryError, torch.OutOfMemoryError) as error:
        trial.error = f"{type(error).__name__}: {error}"


def _first(bench: Bench, task: Task, example: Example, trial: Trial) -> None:
    """The whole answer, from the disk alone where that can be had."""
    if trial.keys:
        trial.cold = chill(bench.engine.bank, (*trial.keys, *trial.companions))
        if not trial.was_cold:
            trial.place = heat(bench.engine.bank, (*trial.companions, *trial.keys))
    trial.answer = _ask(bench, task, example, trial, task.max_tokens)


def _warm(bench: Bench, task: Task, example: Example, trial: Trial) -> None:
    """A request up to its first token, its records in memory."""
    if trial.keys:
        trial.place = heat(bench.engine.bank, (*trial.companions, *(trial.used or trial.keys)))
    trial.warm.append(_ask(bench, task, example, trial, 0))


def _ask(bench: Bench, task: Task, example: Example, trial: Trial, max_tokens: int) -> Answer:
    prompt = example.pages if trial.method.shows_pages else example.text
    shown = [Doc(document.id) for document in example.documents]
    parts: list[str | Doc] = [prompt.before, *shown, prompt.after]
    # Page images are always part of a message, as in Glyph; leaving out the template is LongBench's rule for text.
    chat = bench.engine.chat(method=trial.method, raw=not task.chat and not trial.method.shows_pages)
    answer = chat.ask(
        [Message("user", [part for part in parts if part])],
        query=example.query,
        sampling=Sampling(max_tokens=max_tokens),
    )
    assert chat.turn is not None
    trial.used = tuple(dict.fromkeys(choice.key for choice in chat.turn.plan.choices if choice.key))
    return answer
