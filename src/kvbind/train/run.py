"""A training run in its folder: what it is, how far it came, and how it goes on after an interruption."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from kvbind.errors import TrainingError
from kvbind.files import write_file
from kvbind.models import Writer
from kvbind.models.identity import json_digest
from kvbind.train.data import DataSet, Example
from kvbind.train.plot import draw
from kvbind.train.settings import Settings
from kvbind.train.student import Student
from kvbind.train.teacher import Lesson
from kvbind.writers import WRITER_FACTS, TrainedWriter, save_writer

CHECKPOINT, LOG, RUN, PLOT = "checkpoint.pt", "log.jsonl", "run.json", "loss.svg"
ADAM = {"betas": (0.9, 0.999), "weight_decay": 0.0}


@dataclass
class Run:
    """A run as it stands: `step` of `total` are done, in `seconds`; `log` has a record of each, and of evaluations."""

    folder: Path
    settings: Settings
    student: Student
    writer: Writer
    lessons: Sequence[tuple[Example, Lesson]]
    facts: dict[str, Any]
    step: int = 0
    seconds: float = 0.0
    kept: int = 0  # the step of the last checkpoint, and when it was written
    saved: float = field(default_factory=time.monotonic)
    log: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parameters = self.writer.parameters()
        self.optimizer = torch.optim.AdamW(self.parameters, lr=self.settings.lr, **ADAM)  # type: ignore[arg-type]

    @property
    def per_epoch(self) -> int:
        """Steps of one epoch; its last batch may be a small one."""
        return -(-len(self.lessons) // self.settings.batch)

    @property
    def total(self) -> int:
        """Steps in all."""
        return self.per_epoch * self.settings.epochs

    def batch(self) -> list[tuple[Example, Lesson]]:
        """What this step learns from: a function of seed and step alone, so that an interruption changes nothing."""
        epoch, number = divmod(self.step, self.per_epoch)
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.lessons), generator=generator).tolist()
        size = self.settings.batch
        return [self.lessons[place] for place in order[number * size : (number + 1) * size]]

    def note(self, record: dict[str, Any]) -> None:
        """Add a record to the log."""
        self.log.append(record)
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def evaluation(self, step: int) -> dict[str, Any] | None:
        """The evaluation after so many steps, if it was made."""
        return next((record for record in self.log if "scores" in record and record["step"] == step), None)

    def save(self) -> TrainedWriter:
        """Write the checkpoint, the writer as it is now, and the plot; TrainingError if a weight is not a number."""
        if not all(bool(parameter.isfinite().all()) for parameter in self.parameters):
            raise not_a_number(self.folder, "a weight", self.step, self.kept)
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "weights": {name: tensor.detach() for name, tensor in self.writer.tensors().items()},
            "optimizer": self.optimizer.state_dict(),
        }
        buffer = BytesIO()
        torch.save(state, buffer)
        write_file(self.folder / CHECKPOINT, [buffer.getbuffer()])
        write_file(self.folder / PLOT, [draw(self.log, self.total, self.folder.resolve().name).encode()])
        self.kept, self.saved = self.step, time.monotonic()
        return save_writer(
            self.folder,
            self.settings.config,
            self.writer.tensors(),
            model=self.facts["model"],
            training={**{k: v for k, v in self.facts.items() if k != "model"}, **self.progress()},
        )

    def progress(self) -> dict[str, Any]:
        """How far it came, and how well the writer does: what writer.json says beside the settings."""
        losses = [record["loss"] for record in self.log if "loss" in record]
        return {
            "steps": self.step,
            "of": self.total,
            "seconds": round(self.seconds, 1),
            "loss": {"first": losses[0], "last": losses[-1]} if losses else None,
            "evaluations": [record for record in self.log if "scores" in record],
        }

    def resume(self) -> None:
        """Go on from the folder's checkpoint, if there is one."""
        path = self.folder / CHECKPOINT
        if not path.exists():
            (self.folder / LOG).unlink(missing_ok=True)
            return
        try:
            state = torch.load(path, map_location=self.student.backbone.device, weights_only=True)
            self.writer.fill(state["weights"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, self.kept, self.seconds = state["step"], state["step"], state["seconds"]
        except Exception as error:  # torch raises nearly every type for a damaged file
            raise TrainingError(f"{path} is damaged: delete it to train anew, from the teacher's answers on") from error
        self.log = [record for record in _records(self.folder / LOG) if record["step"] <= self.step]
        write_file(self.folder / LOG, [(json.dumps(record) + "\n").encode() for record in self.log])


def not_a_number(folder: Path, what: str, step: int, kept: int) -> TrainingError:
    """Why training stops at a step, and what is left of it; before any update the rate cannot be the cause."""
    mend = "a lower lr" if step > 1 else "another --dtype"
    return TrainingError(
        f"{what} is not a number at step {step}: training stopped; {folder} keeps the writer of {kept} steps. Train "
        f"with {mend}, into another folder"
    )


def claim(folder: Path, identity: dict[str, Any]) -> None:
    """Make the folder this run's; TrainingError if it is another's, saying in what they differ."""
    path = folder / RUN
    plain = json.loads(json.dumps(identity))
    if path.exists():
        try:
            before = dict(json.loads(path.read_text("utf-8")))
        except (ValueError, TypeError) as error:
            raise TrainingError(f"{path} is damaged: train into another folder") from error
        differing = [name for name in plain if before.get(name) != plain[name]]
        if differing:
            told = ", ".join(_difference(name, before.get(name), plain[name]) for name in differing)
            raise TrainingError(
                f"{folder} holds a run with another {told}: go on with what it was begun with, or train into another "
                "folder"
            )
        return
    if (folder / WRITER_FACTS).exists():
        raise TrainingError(f"{folder} holds a trained writer, and no run to go on with: train into another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_file(path, [(json.dumps(plain, indent=2) + "\n").encode()])


def _difference(name: str, there: Any, here: Any) -> str:
    """What differs, with its values unless they are digests."""
    return name if name in ("data", "model") else f"{name} ({there} there, {here} here)"


def identity_of(settings: Settings, data: Sequence[DataSet], model: dict[str, Any]) -> dict[str, Any]:
    """What a run is: its settings, data and model."""
    digests = [[d.name, [e.digest for e in d.training], [e.digest for e in d.held_out]] for d in data]
    rounding = ("group", "checkpointing")  # they change nothing else
    flat = {name: value for name, value in settings.facts().items() if name not in (*rounding, "teaching")}
    return {**flat, **settings.facts()["teaching"], "data": json_digest(digests), "model": json_digest(model)}


def _records(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log; a crash may have cut off the last."""
    records = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue
    return records
