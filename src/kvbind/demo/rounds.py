"""Questions about the example notes, each answered by several methods over the same bank."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvbind.answer import Answer
from kvbind.corpus import read_documents
from kvbind.engine import Engine
from kvbind.scores import exact_match
from kvbind.steps.decode import Sampling
from kvbind.types import Document

HERE = Path(__file__).parent
METHODS = ("full", "template", "qv-pic")
SHORT = Sampling(max_tokens=24)
ABOUT = 0.25
"""Relevance of the best note below which a question is about none; 200 of the generator's own are all above 0.28."""


@dataclass(frozen=True)
class Task:
    """A question, the right answer where it is known, and the notes it is asked over (None: the most relevant)."""

    question: str
    answer: str | None = None
    notes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Round:
    """A task and its answers by method."""

    task: Task
    answers: Mapping[str, Answer]

    def speedup(self, method: str) -> float:
        """How many times sooner than full prefill the first token came."""
        return self.answers["full"].ttft / self.answers[method].ttft

    def right(self, method: str) -> bool:
        """Whether the method's answer is the right one, which must be known."""
        return self.task.answer is not None and exact_match(self.answers[method].text, [self.task.answer]) == 1

    @property
    def off_topic(self) -> bool:
        """Whether no note is about the question, so that an answer is a guess."""
        return max(source.relevance or 0.0 for source in self.answers["qv-pic"].sources) < ABOUT


def read_notes() -> list[Document]:
    """The notes that ship with the package."""
    return list(read_documents([HERE / "notes.jsonl"]))


def read_tasks() -> list[Task]:
    """The questions that ship with the package."""
    lines = (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [Task(row["question"], row["answer"], tuple(row["notes"])) for row in map(json.loads, lines)]


def run_round(engine: Engine, task: Task) -> Round:
    """Answer a task by every method; a first, untimed round per method keeps a cold start out of the comparison."""
    documents = task.notes if task.notes is not None else [doc.id for doc in engine.retrieve(task.question)]
    answers = {}
    for method in METHODS:
        engine.ask(task.question, documents, method=method, sampling=Sampling(max_tokens=1))
        answers[method] = engine.ask(task.question, documents, method=method, sampling=SHORT)
    return Round(task, answers)
