"""How well a writer's passages are read: answers over held-out examples, against naive stitching and full prefill."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kvbind.scores import longbench_f1, micro_counts, micro_f1
from kvbind.steps.decode import Sampling, decode
from kvbind.steps.read import read_fresh
from kvbind.train.data import Example
from kvbind.train.student import Student, make_prompt
from kvbind.train.teacher import Lesson


@dataclass(frozen=True)
class Trial:
    """A held-out example: the data set it is of, and the full-context answer to it."""

    data_set: str
    example: Example
    lesson: Lesson

    @property
    def right(self) -> tuple[str, ...]:
        """The right answers; where the data has none, the teacher's."""
        return self.example.answers or (self.lesson.text,)


@torch.no_grad()
def answers(
    student: Student, trials: Sequence[Trial], max_tokens: int, tell: Callable[[int], None] = lambda done: None
) -> list[str]:
    """Greedy answers of the reader over the student's passages; `tell` hears how many are there."""
    backbone = student.backbone
    texts: list[str] = []
    for trial in trials:
        tell(len(texts))
        prompt = make_prompt(backbone, trial.example)
        (passages,) = student.compile([prompt])
        layout = prompt.lay_out(backbone, passages)
        context = student.stitch(layout, passages, room=max_tokens)
        logits = read_fresh(backbone, context, layout)
        texts.append(decode(backbone, context, logits, Sampling(max_tokens=max_tokens)).text)
    return texts


def scores(trials: Sequence[Trial], texts: Sequence[str]) -> dict[str, Any]:
    """LongBench F1, the mean over data sets of the mean over examples, and corpus micro-F1: × 100, also by data set."""
    by_set = {
        name: _scores([i for i, trial in enumerate(trials) if trial.data_set == name], trials, texts)
        for name in dict.fromkeys(trial.data_set for trial in trials)
    }
    overall = _scores(range(len(trials)), trials, texts)
    macro = sum(found["f1"] for found in by_set.values()) / max(len(by_set), 1)
    return {"f1": round(macro, 2), "micro_f1": overall["micro_f1"], "by_data_set": by_set}


def _scores(numbers: Sequence[int], trials: Sequence[Trial], texts: Sequence[str]) -> dict[str, float]:
    values = [longbench_f1(texts[number], trials[number].right) for number in numbers]
    micro = micro_f1(micro_counts(texts[number], trials[number].right[0]) for number in numbers)
    return {"f1": round(100 * sum(values) / max(len(values), 1), 2), "micro_f1": round(100 * micro, 2)}
