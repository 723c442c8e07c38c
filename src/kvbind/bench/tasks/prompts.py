"""Prompts: LongBench's own templates, Glyph's for page images, and plain ones for the tasks that have none."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvbind.bench.example import Example, Prompt
from kvbind.types import Document, text_digest

ONLY = "Only give me the answer and do not output any other words."
"""LongBench's words."""

_GIVEN = f"Answer the question based on the given passages. {ONLY}"
_STORY = (
    "You are given a story, which can be either a novel or a movie script, and a question. Answer the question "
    "asconcisely as you can, using a single phrase if possible. Do not provide any explanation.\n\n{shown}\n\n"
    "Now, answer the question based on the story asconcisely as you can, using a single phrase if possible. Do not "
    "provide any explanation.\n\nQuestion: {{input}}\n\nAnswer:"
)
_PASSAGES = f"{_GIVEN}\n\nThe following are given passages.\n{{context}}\n\n{_GIVEN}\n\nQuestion: {{input}}\nAnswer:"
_PASSAGE_PAGES = f"{_GIVEN}\n\nQuestion: {{input}}\nAnswer:"
_NOW = (
    "Now, answer the following question based on the above text, only give me the answer and do not output any other "
    "words.\n\nQuestion: {input}\nAnswer:"
)
_SHOTS = f"Answer the question based on the given passage. {ONLY} "

LONGBENCH = {
    "narrativeqa": _STORY.format(shown="Story: {context}"),
    "multifieldqa_en": f"Read the following text and answer briefly.\n\n{{context}}\n\n{_NOW}",
    "hotpotqa": _PASSAGES,
    "2wikimqa": _PASSAGES,
    "musique": _PASSAGES,
    "triviaqa": _SHOTS + "The following are some examples.\n\n{context}\n\n{input}",
}
"""LongBench's templates, letter by letter ("asconcisely" is theirs)."""

PAGES = {
    "narrativeqa": _STORY.format(shown="Story is shown in the images."),
    "multifieldqa_en": f"Read the text and answer in the images briefly.\n\n{_NOW}",
    "hotpotqa": _PASSAGE_PAGES,
    "2wikimqa": _PASSAGE_PAGES,
    "musique": _PASSAGE_PAGES,
    "triviaqa": _SHOTS + "Some examples are shown in the images.\n\n{input}",
}
"""Glyph's prompts, which stand after the page images."""


def around(template: str, question: str) -> tuple[str, str]:
    """What stands before and after a template's context, the question filled in."""
    before, after = template.split("{context}")
    return before, after.replace("{input}", question)


def closing(after: str) -> str:
    """What follows the documents: a template's blank line there is the ending of the last document's chunk."""
    return after.removeprefix("\n\n")


def page_prompt(template: str, question: str) -> Prompt:
    """A prompt behind page images."""
    return Prompt("", template.replace("{input}", question))


def document(task: str, text: str) -> Document:
    """A document known by its text, so that examples which share a text share its passage."""
    return Document(f"{task}/{text_digest(text)[:16]}", text)


def over_passages(
    task: str,
    name: str,
    texts: Sequence[str],
    question: str,
    answers: Sequence[str],
    gold: Sequence[int] = (),
    facts: Mapping[str, Any] | None = None,
) -> Example:
    """An example of a task whose documents are passages, with LongBench's and Glyph's prompts for several passages."""
    before, after = around(_PASSAGES, question)
    text, pages = Prompt(before, closing(after)), page_prompt(_PASSAGE_PAGES, question)
    documents = tuple(document(task, passage) for passage in texts)
    return Example(name, documents, question, text, pages, tuple(answers), tuple(gold), facts or {})
