"""A search for the fastest method that is as good as full prefill, over a user's own questions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvbind.bank import Bank
from kvbind.bench.candidates import FULL_TEXT
from kvbind.bench.example import Task
from kvbind.bench.groups import joined
from kvbind.bench.records import read_run
from kvbind.bench.run import Options, Progress, run
from kvbind.bench.verdicts import Findings, judge, recommend
from kvbind.engine import Engine
from kvbind.errors import BenchError
from kvbind.scores import longbench_tokens

FIRST_ROUND = 10  # questions that every method is asked; each later round doubles their number
DROPPED = ("worse", "failed")

Tell = Callable[[Progress], None]


@dataclass(frozen=True)
class Search:
    """Methods by their spelling, full prefill among them; how far behind it quality may be, in points of F1.

    `repeats` warm requests are timed for each question and method; `seed` says in which order the questions are asked.
    """

    methods: Sequence[str]
    margin: float
    repeats: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.margin > 0:
            raise BenchError(f"margin={self.margin:g}: give the points of F1 that may be lost, above 0")


def tune(engine: Engine, task: Task, search: Search, folder: Path, progress: Tell | None = None) -> Findings:
    """Ask the task's questions in rounds, dropping what is clearly worse after each, and judge what is left.

    Where no question has an answer, those of full prefill over text are what the others should agree with. Every round
    is a run of its own in `folder`: interrupt it at any time, the same call goes on. Raises what `run` raises.
    """
    agreement, given = not any(example.answers for example in task.examples), len(task.examples)
    tell = progress or (lambda _: None)
    if agreement:
        task = _answered_by_full(engine, task, search, folder / "reference", tell)
    methods, start, runs = tuple(search.methods), 0, []
    for number, end in enumerate(ends(len(task.examples)), 1):
        part = replace(task, examples=task.examples[start:end])
        place = folder / f"round-{number}"
        run(engine, [part], _options(search, methods), place, _shifted(tell, start, len(task.examples)))
        runs.append(read_run(place))
        _, judged = judge(joined(runs), task.name, search.margin)
        kept = {one.row.method for one in judged if one.verdict not in DROPPED}
        methods, start = tuple(method for method in methods if method in kept), end
        if len(methods) == 1:
            break
    found = recommend(joined(runs), task.name, search.margin, agreement=agreement)
    return replace(found, left_out=given - len(task.examples))


def ends(questions: int) -> list[int]:
    """After how many questions each round ends: 10, 20, 40, …, and the last question."""
    found = [FIRST_ROUND]
    while found[-1] < questions:
        found.append(2 * found[-1])
    return [*found[:-1], questions]


def _options(search: Search, methods: tuple[str, ...]) -> Options:
    return Options(methods, seed=search.seed, repeats=search.repeats)


def _answered_by_full(engine: Engine, task: Task, search: Search, folder: Path, tell: Tell) -> Task:
    """The questions that full prefill over text says something to, each with that as its answer."""
    options = replace(_options(search, (FULL_TEXT,)), repeats=1)
    records = run(engine, [task], options, folder, tell)
    said = {record["example"]: record.get("prediction", "") for record in records}
    examples = [
        replace(example, answers=(said[example.id],)) for example in task.examples if longbench_tokens(said[example.id])
    ]
    if not examples:
        why = next((record["error"] for record in records if "error" in record), "its answers have no words")
        raise BenchError(f"full prefill over text answered no question ({why}): give questions with answers")
    return replace(task, examples=examples)


def _shifted(tell: Tell, before: int, total: int) -> Tell:
    return lambda progress: tell(replace(progress, done=before + progress.done, total=total))


def beside(engine: Engine, bank: Bank) -> Engine:
    """The same engine over another bank, which learns what is known of the model's layers.

    A search compiles much, and times it: neither belongs into the bank that is asked every day.
    """
    made = Engine(engine.backbone, bank, embedder=engine.library.embedder, page=engine.page, source=engine.source)
    name = engine.library.profile_name
    known = engine.bank.get_setting(name)
    if known is not None:
        bank.set_setting(name, known)
    return made
