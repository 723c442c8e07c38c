"""What a writer learns from: questions over documents, in JSON Lines files, each file a data set."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kvbind.errors import TrainingError

SUFFIXES = (".jsonl", ".ndjson")
EXAMPLE = 'write the line as in {"documents": ["...", "..."], "question": "...", "answer": "..."}'


@dataclass(frozen=True)
class Example:
    """A question over documents, in the order in which they are shown.

    `answers` are the right ones, for scores; without any, the teacher's answer stands for them. `before` is text that
    precedes the documents. `place` is its file and line.
    """

    documents: tuple[str, ...]
    question: str
    answers: tuple[str, ...] = ()
    before: str = ""
    place: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 over everything but its place."""
        return _sha256([self.documents, self.question, self.answers, self.before])

    @property
    def prompt(self) -> str:
        """SHA-256 over what the model is shown; the answers that count as right are not."""
        return _sha256([self.documents, self.question, self.before])


@dataclass(frozen=True)
class DataSet:
    """The examples of one file, some of them held out from training."""

    name: str
    training: tuple[Example, ...]
    held_out: tuple[Example, ...]


def read_data(
    paths: Sequence[Path], *, held_out: int = 100, samples: int | None = None, seed: int = 0
) -> list[DataSet]:
    """Data sets of files, and of folders with such files; TrainingError names the first broken line of any.

    `samples` draws that many of each file by `seed`. Held out are `held_out` prompts of each, at most a tenth but at
    least one, by their digest, in whatever order the file has them. No prompt that any file holds out is trained on.
    """
    files = [file for path in paths for file in _files(path)]
    read = {file: _sampled(list(_examples(file)), samples, seed) for file in files}
    chosen = {file: _held_out(examples, held_out) for file, examples in read.items()}
    apart = {example.prompt for examples in chosen.values() for example in examples}
    return [
        DataSet(_stem(file, files), tuple(one for one in read[file] if one.prompt not in apart), chosen[file])
        for file in files
    ]


def _stem(file: Path, files: Sequence[Path]) -> str:
    """A file's name without its suffix, or its path where two files share a name."""
    return file.stem if sum(other.stem == file.stem for other in files) == 1 else str(file)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise TrainingError(f"{path}: not found: name a JSON Lines file, or a folder of them")
    found = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and not file.name.startswith("."))
    if not found:
        raise TrainingError(f"{path}: no data found: put files with {' or '.join(SUFFIXES)} there")
    return found


def _sampled(examples: list[Example], samples: int | None, seed: int) -> list[Example]:
    if samples is None or samples >= len(examples):
        return examples
    return [examples[number] for number in sorted(Random(seed).sample(range(len(examples)), samples))]


def _held_out(examples: Sequence[Example], most: int) -> tuple[Example, ...]:
    unique = {example.prompt: example for example in examples}
    count = min(most, max(1, len(unique) // 10)) if len(unique) > 1 else 0
    return tuple(unique[prompt] for prompt in sorted(unique)[:count])


def _examples(path: Path) -> Iterator[Example]:
    found = False
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    found = True
                    yield _example(line, f"{path}:{number}")
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror}): check the path and its permissions") from error
    if not found:
        raise TrainingError(f"{path}: empty: give it one example a line")


def _sha256(content: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _example(line: bytes, place: str) -> Example:
    try:
        record = json.loads(line)
    except UnicodeDecodeError as error:
        raise TrainingError(f"{place}: not UTF-8 (from byte {error.start} of the line): save it as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise TrainingError(f"{place}: broken JSON ({error}): write one whole JSON object a line") from error
    if not isinstance(record, dict):
        raise TrainingError(f"{place}: not a JSON object: {EXAMPLE}")
    documents = record.get("documents")
    if not isinstance(documents, list) or not documents:
        raise TrainingError(f'{place}: "documents" is not a list of at least one document: {EXAMPLE}')
    answers = record.get("answer", [])
    texts = [_document(item, place) for item in documents]
    question, before = _text(record.get("question"), "question", place), record.get("before") or ""
    given = [answers] if isinstance(answers, str) or answers is None else answers
    if not isinstance(given, list):
        raise TrainingError(f'{place}: "answer" is neither a string nor a list of strings: {EXAMPLE}')
    right = [_text(answer, "answer", place) for answer in given if answer is not None]
    before = _text(before, "before", place) if before else ""
    return Example(tuple(texts), question, tuple(right), before, place)


def _document(item: Any, place: str) -> str:
    """A document's text: a string, or an object with `text` and perhaps `title`, as `kvbind compile` reads them."""
    if isinstance(item, Mapping):
        text, title = _text(item.get("text"), "documents", place), item.get("title")
        return f"{_text(title, 'title', place)}\n{text}" if title else text
    return _text(item, "documents", place)


def _text(value: Any, name: str, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TrainingError(f'{place}: "{name}" holds {json.dumps(value)[:40]} where text should be: {EXAMPLE}')
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TrainingError(
            f'{place}: "{name}" holds half a character (a lone surrogate): write valid UTF-8'
        ) from error
    return value
