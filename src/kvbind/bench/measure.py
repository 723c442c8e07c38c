"""One example, asked by every method: side by side, cold once and warm several times."""

import random
from collections.abc import Iterator, Mapping
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
    """What all examples of a run share: methods by their spelling, how many warm requests are timed, and a seed."""

    engine: Engine
    journal: Journal
    methods: Mapping[str, Method]
    repeats: int
    seed: int


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


def measure(bench: Bench, task: Task, example: Example, *, first: bool) -> list[Trial]:
    """Compile what is missing, then ask in rounds: every method once, in an order drawn for the example.

    Drift of the machine so hits all methods alike. With `first` each method asks once unmeasured: the head is computed
    then, and the model's kernels are ready.
    """
    trials = [Trial(spelling, method) for spelling, method in bench.methods.items()]
    for trial in trials:
        with _noting(trial):
            trial.keys = prepare(bench.engine, bench.journal, example.documents, trial.method)
            trial.companions = companion_keys(bench.engine.bank, example.documents, trial.method)
            if first:
                _ask(bench, task, example, trial, 0)
    order = list(trials)
    random.Random(f"{bench.seed}/{task.name}/{example.id}").shuffle(order)
    for _ in range(bench.repeats + 1):
        for trial in order:
            with _noting(trial):
                _request(bench, task, example, trial)
    return trials


@contextmanager
def _noting(trial: Trial) -> Iterator[None]:
    """Note why an example is too much for a method; a bank that cannot be used any more ends the run."""
    try:
        yield
    except BankError:
        raise
    except (KvbindError, MemoryError, torch.OutOfMemoryError) as error:
        trial.error = f"{type(error).__name__}: {error}"


def _request(bench: Bench, task: Task, example: Example, trial: Trial) -> None:
    """The next request that is due: the first is whole, and cold where it can be; later ones end at the first token."""
    if trial.error or len(trial.warm) >= bench.repeats:
        return
    bank, first = bench.engine.bank, trial.answer is None
    if first and trial.keys:
        trial.cold = chill(bank, (*trial.keys, *trial.companions))
    cold = first and trial.cold is not None and trial.cold.reached
    if trial.keys and not cold:
        trial.place = heat(bank, (*trial.companions, *(trial.used or trial.keys)))
    answer = _ask(bench, task, example, trial, task.max_tokens if first else 0)
    if first:
        trial.answer = answer
    if not cold:
        trial.warm.append(answer)


def _ask(bench: Bench, task: Task, example: Example, trial: Trial, max_tokens: int) -> Answer:
    prompt = example.pages if trial.method.shows_pages else example.text
    shown = [Doc(document.id) for document in example.documents]
    parts: list[str | Doc] = [prompt.before, *shown, prompt.after]
    chat = bench.engine.chat(method=trial.method, raw=not task.chat)
    answer = chat.ask(
        [Message("user", [part for part in parts if part])],
        query=example.query,
        sampling=Sampling(max_tokens=max_tokens),
    )
    assert chat.turn is not None
    trial.used = tuple(dict.fromkeys(choice.key for choice in chat.turn.plan.choices if choice.key))
    return answer
