"""What a benchmark asks: tasks of examples, each with its documents, its prompts and its right answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvbind.types import Document


@dataclass(frozen=True)
class Prompt:
    """What stands before the documents and after them, the question included."""

    before: str
    after: str


@dataclass(frozen=True)
class Example:
    """One question over documents, in the order in which the prompt shows them.

    A document's id is made of its text, so that examples which share one share its passage. `query` is the bare
    question, which relevance is measured against. `text` and `pages` are the prompts for documents shown as text and as
    page images. `gold` are the places of the documents that hold the answer, empty where that is not known. `facts`
    says what else a report may group by.
    """

    id: str
    documents: tuple[Document, ...]
    query: str
    text: Prompt
    pages: Prompt
    answers: tuple[str, ...]
    gold: tuple[int, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Examples that are asked and scored by the same rules.

    `max_tokens` of an answer; `chat`: whether the model's chat template goes around a text prompt (around one with page
    images it always does); `first_line`: whether only a prediction's first line counts (LongBench's few-shot tasks);
    `micro`: the name of the post-processing before corpus micro-F1 (a key of `kvbind.scores.EXTRACT`). `chunking` says
    in words how documents were cut, and `source` where the examples come from.
    """

    name: str
    examples: Sequence[Example]
    max_tokens: int
    chunking: str
    source: str
    chat: bool = True
    first_line: bool = False
    micro: str = "whole"
