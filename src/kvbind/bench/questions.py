"""A user's own questions: read from a file, and made into a task over the documents of a bank."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kvbind.bench.example import Example, Prompt, Task
from kvbind.engine import Engine
from kvbind.errors import BenchError

JSON_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class Question:
    """A question and the line on which it stands, its right answers (none: not known), and ids of its documents.

    Where `documents` is None, the most relevant ones of the bank are asked over.
    """

    line: int
    text: str
    answers: tuple[str, ...] = ()
    documents: tuple[str, ...] | None = None


def read_questions(path: Path) -> list[Question]:
    """The questions of a file: one a line, as text or, where its name ends in .jsonl, as a JSON object.

    An object has a "question" and perhaps an "answer" or "answers", and "documents". Raises BenchError for a line that
    cannot be read, and where some questions have answers and others have none.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BenchError(f"{path}: not UTF-8 text (from byte {error.start}): save it as UTF-8") from error
    except OSError as error:
        raise BenchError(f"{path}: cannot be read ({error.strerror}): check the path and its permissions") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if path.suffix.lower() in JSON_LINES:
        questions = [_question(path, number, line) for number, line in lines]
    else:
        questions = [Question(number, line) for number, line in lines]
    if not questions:
        raise BenchError(f"{path}: holds no questions: give one a line")
    lacking = [question for question in questions if not question.answers]
    if len(lacking) not in (0, len(questions)):
        raise BenchError(
            f"{path}: {len(lacking)} of {len(questions)} questions have no answer, line {lacking[0].line} for one: "
            "give answers to all of them, or to none"
        )
    return questions


def _question(path: Path, number: int, line: str) -> Question:
    place = f"{path}:{number}"
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BenchError(f"{place}: broken JSON ({error}): give one object a line") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("question"), str) or not fields["question"].strip():
        raise BenchError(f'{place}: expected an object with a "question", a text')
    if "answer" in fields and "answers" in fields:
        raise BenchError(f'{place}: has "answer" and "answers": give one of them')
    answers = [fields["answer"]] if "answer" in fields else fields.get("answers", [])
    return Question(
        number,
        fields["question"].strip(),
        _texts(f'{place}: "answers"', answers),
        _texts(f'{place}: "documents"', fields["documents"], fewest=1) if "documents" in fields else None,
    )


def _texts(place: str, values: Any, fewest: int = 0) -> tuple[str, ...]:
    if not isinstance(values, list) or len(values) < fewest or not all(isinstance(v, str) and v for v in values):
        raise BenchError(f'{place}: expected texts, like ["…"], found {json.dumps(values, ensure_ascii=False)[:40]}')
    return tuple(values)


def draw(questions: Sequence[Question], n: int | None, seed: int) -> list[Question]:
    """The first `n` questions (None: all) in an order that the seed decides, as a file's own may mean something."""
    if n is not None and n > len(questions):
        raise BenchError(f"{n} questions are asked for, there are {len(questions)}: ask for fewer")
    order = list(questions)
    Random(f"questions/{seed}").shuffle(order)
    return order[:n]


def own_task(engine: Engine, questions: Sequence[Question], *, top_k: int, max_tokens: int, source: str) -> Task:
    """The questions as a task, each asked alone, as `kvbind ask` does: documents, then the question.

    Raises DocumentError for a document that the engine's bank does not hold.
    """
    words = f"the bank's documents, whole: those named, else the {top_k} most relevant; as page images one chunk a page"
    examples = [_example(engine, question, top_k) for question in questions]
    return Task("questions", examples, max_tokens, words, source)


def _example(engine: Engine, question: Question, top_k: int) -> Example:
    prompt = Prompt("", question.text)
    ids = question.documents or [found.id for found in engine.retrieve(question.text, top_k)]
    documents = tuple(map(engine.bank.document, ids))
    return Example(f"line-{question.line}", documents, question.text, prompt, prompt, question.answers)
