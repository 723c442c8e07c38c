"""Training a writer: the teacher's lessons, then steps of distillation, with evaluations before, between and after."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kvbind.errors import TrainingError
from kvbind.models import new_writer
from kvbind.steps.library import Library
from kvbind.steps.read import read
from kvbind.train.checkpointing import read_checkpointed
from kvbind.train.data import DataSet, Example
from kvbind.train.evaluate import Trial, answers, scores
from kvbind.train.loss import divergence
from kvbind.train.run import Run, claim, identity_of, not_a_number
from kvbind.train.settings import Settings
from kvbind.train.student import Student, make_prompt
from kvbind.train.teacher import Lesson, teach
from kvbind.writers import TrainedWriter, WriterConfig

Tell = Callable[[str, int, int, str], None]
"""Hears of progress: what is being done, how much of how much, and a note."""


@dataclass(frozen=True)
class Options:
    """How a run goes, without a bearing on its outcome.

    Where lessons are kept, how many evaluations lie between the first and the last, and seconds between checkpoints.
    """

    lessons: Path
    evaluations: int = 3
    save_every: float = 60.0


def train(
    library: Library,
    data: Sequence[DataSet],
    folder: Path,
    settings: Settings,
    options: Options,
    *,
    source: str = "not named",
    tell: Tell = lambda what, done, total, note: None,
    stop: Callable[[], bool] = lambda: False,
) -> TrainedWriter:
    """Train a writer into a folder, or go on where it was interrupted; the folder then serves as `adapter=`.

    `stop` is asked between steps: training then ends with KeyboardInterrupt, a checkpoint written. Raises TrainingError
    for data that cannot be learned from, a folder of another run, and a loss that is not a number.
    """
    model = {"source": source, **library.backbone.facts}
    if not any(part.training for part in data):
        raise TrainingError("the data has no example to train on: give two or more")
    claim(folder, identity_of(settings, data, library.backbone.facts))
    learned, trials = _lessons(library, data, settings, options, tell, stop)
    _check_room(library, settings, [*learned, *((trial.example, trial.lesson) for trial in trials)])
    config = settings.config
    writer = new_writer(library.backbone, f"training{len(library.backbone.adapters.names)}", config, settings.seed)
    student = Student(library, config, writer, read_checkpointed if settings.checkpointing else read)
    facts = {"model": model, "settings": settings.facts(), "data": _data_facts(data), "versions": _versions()}
    run = Run(folder, settings, student, writer, learned, facts)
    run.resume()
    _steps(run, trials, options, tell, stop)
    return run.save()


def _lessons(
    library: Library,
    data: Sequence[DataSet],
    settings: Settings,
    options: Options,
    tell: Tell,
    stop: Callable[[], bool],
) -> tuple[list[tuple[Example, Lesson]], list[Trial]]:
    """What is learned from, and what is held out: there the teacher always answers by itself."""
    examples = [example for part in data for example in part.training]
    held_out = [(part.name, example) for part in data for example in part.held_out]
    wanted = [(examples, settings.teaching), ([e for _, e in held_out], replace(settings.teaching, given=False))]
    (taught, full) = (
        teach(library, some, teaching, options.lessons, partial(_told, tell, "teacher"), stop)
        for some, teaching in wanted
    )
    trials = [Trial(name, example, lesson) for (name, example), lesson in zip(held_out, full, strict=True)]
    return list(zip(examples, taught, strict=True)), trials


def _told(tell: Tell, what: str, done: int, total: int) -> None:
    tell(what, done, total, "")


def _check_room(library: Library, settings: Settings, pairs: Sequence[tuple[Example, Lesson]]) -> None:
    """TrainingError if soft rows and an answer do not fit into the model's window behind a prompt."""
    for example, lesson in pairs:
        soft = len(example.documents) * (settings.config.header + settings.config.trailer)
        end = lesson.end + soft + len(lesson.ids)
        if end > library.backbone.window:
            raise TrainingError(
                f"{example.place}: prompt, soft rows and answer take {end} positions, the model's window is "
                f"{library.backbone.window}: shorten its documents, or leave the line out"
            )


def _steps(run: Run, trials: Sequence[Trial], options: Options, tell: Tell, stop: Callable[[], bool]) -> None:
    """All steps that are left, checkpoints and evaluations among them."""
    points = {round(run.total * part / (options.evaluations + 1)) for part in range(options.evaluations + 2)}
    while True:
        if run.step in points and run.evaluation(run.step) is None:
            run.save()  # before, since an evaluation takes its time
            _evaluate(run, trials, tell, stop)
        if run.step == run.total:
            return
        if stop():
            run.save()
            raise KeyboardInterrupt
        start = time.perf_counter()
        loss, norm, rate = one_step(run)
        run.step, run.seconds = run.step + 1, run.seconds + time.perf_counter() - start
        run.note({"step": run.step, "loss": round(loss, 6), "norm": round(norm, 4), "lr": rate})
        tell("training", run.step, run.total, f"KL {loss:.4f}")
        if time.monotonic() - run.saved >= options.save_every:
            run.save()


def one_step(run: Run) -> tuple[float, float, float]:
    """One step of AdamW on a batch: the mean KL over its answers' places, the gradients' norm, and the rate."""
    batch, size = run.batch(), run.settings.group
    places = sum(lesson.places for _, lesson in batch)
    total = 0.0
    for start in range(0, len(batch), size):
        loss = distance(run.student, batch[start : start + size]) / places
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    norm = float(torch.nn.utils.clip_grad_norm_(run.parameters, run.settings.clip))
    if not (math.isfinite(total) and math.isfinite(norm)):
        what = "the gradient" if math.isfinite(total) else "the loss"
        raise not_a_number(run.folder, what, run.step + 1, run.kept)
    rate = run.settings.lr * (1 - run.step / run.total)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    run.optimizer.step()
    run.optimizer.zero_grad()
    return total, norm, rate


def distance(student: Student, batch: Sequence[tuple[Example, Lesson]]) -> Tensor:
    """KL(teacher ‖ student) summed over all places of the answers of some examples (SemPIC)."""
    backbone = student.backbone
    prompts = [make_prompt(backbone, example) for example, _ in batch]
    parts = []
    for prompt, passages, (_, lesson) in zip(prompts, student.compile(prompts), batch, strict=True):
        read_ids = lesson.ids[: lesson.places - 1]  # nothing follows the last of an answer that was cut off
        logits = student.logits(prompt, passages, read_ids, lesson.places)
        teacher = (part.to(logits.device) for part in (lesson.top, lesson.logs, lesson.rest))
        parts.append(divergence(logits, *teacher).sum())
    return torch.stack(parts).sum()


def _evaluate(run: Run, trials: Sequence[Trial], tell: Tell, stop: Callable[[], bool]) -> None:
    """Scores of the writer as it is; those of full prefill and of naive stitching beside the first."""

    def told(done: int) -> None:
        tell("evaluating", done, len(trials), "")
        if stop():
            raise KeyboardInterrupt

    if not trials:
        return
    longest = run.settings.teaching.max_tokens
    record: dict[str, Any] = {"step": run.step, "scores": scores(trials, answers(run.student, trials, longest, told))}
    if run.step == 0:
        naive = Student(run.student.library, WriterConfig("writer"))
        record["naive"] = scores(trials, answers(naive, trials, longest, told))
        record["full"] = scores(trials, [trial.lesson.text for trial in trials])
    run.note(record)


def _data_facts(data: Sequence[DataSet]) -> list[dict[str, Any]]:
    return [{"name": p.name, "training": len(p.training), "held_out": len(p.held_out)} for p in data]


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("kvbind", "torch", "transformers")}
