"""The teacher: the base model over the full context. Its answers and distributions are made once, and kept on disk."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from kvbind.errors import TrainingError
from kvbind.files import write_file
from kvbind.models import Context, line
from kvbind.models.identity import json_digest
from kvbind.steps.decode import Generation, Sampling, decode
from kvbind.steps.library import Library
from kvbind.steps.read import keep, prefill, read
from kvbind.train.data import Example
from kvbind.train.loss import compress
from kvbind.train.student import make_prompt

SHARD = 64
"""Lessons in one file: as many are lost at most when a run is killed."""


@dataclass(frozen=True)
class Teaching:
    """How lessons are made: the longest answer in tokens, and how many of the likeliest tokens are kept of each place.

    With `given` the answer is the data's first one, where there is one; else the teacher's own, greedy.
    """

    max_tokens: int = 64
    top: int = 64
    given: bool = False


@dataclass(frozen=True)
class Lesson:
    """A teacher's answer to an example, and its distributions at m places: before each of its tokens (n,), and after.

    m = n + 1 where the answer ended by itself, else n. `top` (m, k) are the likeliest token ids, `logs` (m, k) their
    log-probabilities and `rest` (m,) the log of what remains. `end` is the position after the teacher's prompt.
    """

    ids: Tensor
    top: Tensor
    logs: Tensor
    rest: Tensor
    text: str
    end: int

    @property
    def places(self) -> int:
        """How many distributions there are."""
        return self.rest.shape[0]


def teach(
    library: Library,
    examples: Sequence[Example],
    teaching: Teaching,
    folder: Path,
    tell: Callable[[int, int], None] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Lesson]:
    """The lessons of some examples, from the folder or made now; `tell` hears how many are there, of how many.

    A lesson is found by everything that it depends on: another model's, or one for other options, is another. Raises
    KeyboardInterrupt when `stop` says so; what was made is kept.
    """
    keys = [_key(library, example, teaching) for example in examples]
    known = _stored(folder, set(keys))
    missing = {key: example for key, example in zip(keys, examples, strict=True) if key not in known}
    shard: dict[str, Lesson] = {}
    try:
        for number, (key, example) in enumerate(missing.items()):
            tell(len(set(keys)) - len(missing) + number, len(set(keys)))
            if stop():
                raise KeyboardInterrupt
            shard[key] = known[key] = make_lesson(library, example, teaching)
            if len(shard) == SHARD:
                _store(folder, shard)
                shard = {}
    finally:
        if shard:
            _store(folder, shard)
    return [known[key] for key in keys]


def _key(library: Library, example: Example, teaching: Teaching) -> str:
    answer = example.answers[0] if teaching.given and example.answers else None
    content = [example.documents, example.question, example.before, answer]
    return json_digest([library.backbone.facts, content, teaching.max_tokens, teaching.top])


@torch.no_grad()
def make_lesson(library: Library, example: Example, teaching: Teaching) -> Lesson:
    """Ask the teacher, by the model's own forward over the full context."""
    backbone = library.backbone
    prompt = make_prompt(backbone, example)
    layout = prompt.lay_out(backbone, prompt.documents)
    if layout.end >= backbone.window:
        raise TrainingError(
            f"{example.place}: the prompt takes {layout.end} positions, the model's window is {backbone.window}: "
            "shorten its documents, or leave the line out"
        )
    logits, cache = prefill(backbone, layout)
    context = backbone.context(layout.rows + teaching.max_tokens)
    keep(context, layout, cache)
    answer = _answer(library, example, context, logits, teaching)
    context.truncate(layout.rows, layout.end)
    ids = torch.tensor(answer.ids, dtype=torch.long)
    places = len(ids) + (answer.finish == "stop")
    top, logs, rest = compress(_distributions(library, context, logits, ids)[:places], teaching.top)
    if logs.isnan().any():
        raise TrainingError(
            f"{example.place}: the model's own answer is not made of numbers: try another number format"
        )
    return Lesson(ids, top.cpu(), logs.cpu(), rest.cpu(), answer.text, layout.end)


def _answer(library: Library, example: Example, context: Context, logits: Tensor, teaching: Teaching) -> Generation:
    """The answer that is taught: the data's where that is asked for, else the teacher's own."""
    backbone = library.backbone
    if not teaching.given or not example.answers:
        return decode(backbone, context, logits, Sampling(max_tokens=teaching.max_tokens))
    ids = backbone.tokens(example.answers[0])[: teaching.max_tokens]
    if context.position + len(ids) > backbone.window:
        raise TrainingError(f"{example.place}: prompt and answer are longer than the model's window: shorten them")
    return Generation(tuple(ids), example.answers[0], "stop", ())


def _distributions(library: Library, context: Context, logits: Tensor, ids: Tensor) -> Tensor:
    """Logits (n + 1, V): before each of an answer's tokens (n,), and after the last."""
    if not len(ids):
        return logits[None]
    backbone = library.backbone
    positions = line(context.position, len(ids), backbone.family.axes)[:, None].to(context.device)
    rows = context.extend(len(ids))
    hidden = read(backbone, context, backbone.embed(ids[None].to(context.device)), rows, positions)
    return torch.cat((logits[None], backbone.logits(hidden)[0]))


def _store(folder: Path, lessons: dict[str, Lesson]) -> None:
    """Write some lessons as one file, whole or not at all, under a name made of their keys."""
    tensors: dict[str, Tensor] = {}
    for key, lesson in lessons.items():
        parts = {"ids": lesson.ids.int(), "top": lesson.top.int(), "logs": lesson.logs, "rest": lesson.rest}
        tensors |= {f"{key}.{name}": tensor.contiguous() for name, tensor in parts.items()}
    facts = {key: {"text": lesson.text, "end": lesson.end} for key, lesson in lessons.items()}
    folder.mkdir(parents=True, exist_ok=True)
    data = safetensors.torch.save(tensors, {"lessons": json.dumps(facts)})
    write_file(folder / f"lessons-{json_digest(list(lessons))[:16]}.safetensors", [data])


def _stored(folder: Path, keys: Collection[str]) -> dict[str, Lesson]:
    """Those of some lessons that a folder has."""
    known = {}
    for path in sorted(folder.glob("lessons-*.safetensors")):
        try:
            with safetensors.safe_open(path, "pt") as file:
                for key, facts in json.loads(file.metadata()["lessons"]).items():
                    if key in keys:
                        ids, top = (file.get_tensor(f"{key}.{name}").long() for name in ("ids", "top"))
                        logs, rest = (file.get_tensor(f"{key}.{name}") for name in ("logs", "rest"))
                        known[key] = Lesson(ids, top, logs, rest, facts["text"], facts["end"])
        except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
            raise TrainingError(f"{path} is damaged: delete it, and its lessons are made anew") from error
    return known
