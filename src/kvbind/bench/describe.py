"""How a run, and each of its answers, is written down."""

import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch

from kvbind import __version__
from kvbind.answer import Answer
from kvbind.bank.store import DirectoryStore
from kvbind.bench.costs import companions
from kvbind.bench.example import Example, Task
from kvbind.bench.measure import Trial
from kvbind.bench.records import Record
from kvbind.engine import Engine
from kvbind.methods import Method, given
from kvbind.models.identity import json_digest
from kvbind.scores import EXTRACT, exact_match, first_line, longbench_f1, micro_counts, without_thoughts
from kvbind.steps.clock import TTFT_STEPS
from kvbind.types import label

FORMAT = 1


def configuration(engine: Engine, tasks: Sequence[Task], methods: Mapping[str, Method]) -> Record:
    """Everything that decides what a run's numbers are."""
    return {
        "format": FORMAT,
        "model": engine.source,
        "facts": json_digest(engine.backbone.facts),
        "dtype": str(engine.backbone.dtype).removeprefix("torch."),
        "device": device_name(engine.backbone.device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "page": asdict(engine.page),
        "embedder": engine.library.embedder.identity,
        "bank": "folder" if isinstance(engine.bank.store, DirectoryStore) else "memory",
        "methods": [_method(engine, spelling, method) for spelling, method in methods.items()],
        "tasks": [_task(task) for task in tasks],
    }


def _method(engine: Engine, spelling: str, method: Method) -> Record:
    kept = {label(shown): list(companions(engine.library, method, shown)) for shown in method.representations}
    facts = {
        "spelling": spelling,
        "name": method.name,
        "given": given(spelling)[1],
        "repairs": method.selector is not None,
        "write": method.write.label if method.write else None,
        "shown": [label(representation) for representation in method.representations],
        "pages": method.shows_pages,
    }
    return facts | ({"companions": kept} if any(kept.values()) else {})


def _task(task: Task) -> Record:
    """A task's rules, and a digest of its examples: other data under the same name is another run."""
    facts = {name: value for name, value in vars(task).items() if name != "examples"}
    content = [asdict(example) for example in task.examples]
    return {**facts, "examples": len(task.examples), "digest": json_digest(content)}


def versions() -> dict[str, str]:
    """What computed the numbers."""
    return {"kvbind": __version__, "torch": str(torch.__version__), "transformers": version("transformers")}


def device_name(device: torch.device) -> str:
    """The device and the maker's name for it."""
    if device.type == "cuda":
        return f"{device}, {torch.cuda.get_device_name(device)}"
    return f"{device}, {_processor()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def describe(engine: Engine, task: Task, example: Example, trial: Trial) -> Record:
    """The record of one example and method: what was said, how good it is, how long it took, what was reused."""
    asked = {
        "task": task.name,
        "example": example.id,
        "method": trial.spelling,
        "documents": [document.id for document in example.documents],
        "gold": list(example.gold),
        "facts": dict(example.facts),
        "versions": versions(),
        "device": device_name(engine.backbone.device),
        "chunking": task.chunking,
    }
    if trial.error or trial.answer is None:
        return {**asked, "error": trial.error}
    return {**asked, **_quality(task, example, trial.answer), **_time(trial), **_reuse(engine, trial, trial.answer)}


def _quality(task: Task, example: Example, answer: Answer) -> Record:
    gold = example.answers[0] if example.answers else ""  # corpus micro-F1 knows one right answer
    said = without_thoughts(answer.text)
    line = first_line(said) if task.first_line else said
    final = EXTRACT["answer"](line) if task.micro == "answer" else line
    return {
        "ids": list(answer.ids),
        "prediction": answer.text,
        "finish": answer.finish,
        "answers": list(example.answers),
        "f1": longbench_f1(final, example.answers),
        "exact": exact_match(final, example.answers),
        "micro": list(micro_counts(line, gold, task.micro)),
    }


def _time(trial: Trial) -> Record:
    """Seconds: TTFT cold (null where it could not be measured) and of each warm request, and steps of both."""
    assert trial.answer is not None
    cold = trial.answer if trial.cold and trial.cold.reached else None
    steps = [name for name in TTFT_STEPS if name in trial.answer.seconds]
    return {
        "ttft": {"cold": cold and cold.ttft, "warm": [answer.ttft for answer in trial.warm]},
        "steps": {
            "cold": cold and {name: cold.seconds[name] for name in steps},
            "warm": {name: sum(a.seconds[name] for a in trial.warm) / len(trial.warm) for name in steps},
        },
        "decode": trial.answer.seconds.get("decode"),
        "cold": trial.cold and trial.cold.how,
        "warm": trial.place,
    }


def _reuse(engine: Engine, trial: Trial, answer: Answer) -> Record:
    """Rows by where they came from; reused rows computed anew; bytes of the passages it took."""
    return {
        "tokens": dict(answer.tokens),
        "shown": dict(Counter(source.representation for source in answer.sources)),
        "recomputed": answer.tokens["recomputed"],
        "bytes": sum(engine.bank.store.size(key) or 0 for key in trial.used),
    }
