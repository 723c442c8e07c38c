"""Reading comprehension over passages: XQuAD and NQ-open."""

import re
from collections.abc import Sequence
from random import Random

from kvbind.bench.example import Example, Task
from kvbind.bench.tasks.options import TaskOptions
from kvbind.bench.tasks.prompts import over_passages
from kvbind.bench.tasks.records import Record, choose, find, read_records
from kvbind.errors import BenchError
from kvbind.scores import longbench_tokens

_MAX_TOKENS = 32


def xquad(options: TaskOptions, *, language: str = "en") -> Task:
    """XQuAD: the paragraphs of an article, a question about one of them.

    Every language asks the same questions in the same order. Tokens are split at blanks in every language: for
    Chinese, where there are none, F1 is nearly exact match.
    """
    if not re.fullmatch("[a-z]{2}", language):
        raise BenchError(f"xquad:language={language}: give a language's two letters, like en, zh or ar")
    names = [f"xquad/xquad.{language}.json", f"xquad.{language}.json"]
    path = find("xquad", options, names, "https://github.com/google-deepmind/xquad")
    articles = [article for record in read_records(path) for article in record.inner("data")]
    questions = [pair for article in articles for pair in _questions(article)]
    chosen = choose("xquad", options, questions, path)
    examples = [_xquad(article, place, asked, language) for article, place, asked in chosen]
    return Task("xquad", examples, _MAX_TOKENS, "one chunk per paragraph of the article", f"XQuAD {language}, {path}")


def _questions(article: Record) -> list[tuple[Record, int, Record]]:
    return [
        (article, place, asked)
        for place, paragraph in enumerate(article.inner("paragraphs"))
        for asked in paragraph.inner("qas")
    ]


def _xquad(article: Record, place: int, asked: Record, language: str) -> Example:
    texts = [paragraph.get("context", str).strip() for paragraph in article.inner("paragraphs")]
    answers = list(dict.fromkeys(answer.get("text", str) for answer in asked.inner("answers")))
    facts = {"language": language, "article": article.fields.get("title", "")}
    return over_passages("xquad", asked.get("id", str), texts, asked.get("question", str), answers, (place,), facts)


def nq_open(options: TaskOptions, *, passages: int = 5) -> Task:
    """NQ-open with the passage that holds the answer, and other questions' passages beside it.

    No distractor holds an answer. Which ones, and the order, are drawn by the seed.
    """
    if passages < 1:
        raise BenchError(f"nq-open:passages={passages}: ask for one or more")
    names = ["nq_open/nq-open-oracle.jsonl.gz", "nq-open-oracle.jsonl.gz"]
    path = find("nq-open", options, names, "https://github.com/nelson-liu/lost-in-the-middle (qa_data)")
    numbered = list(enumerate(read_records(path)))
    golds = [_gold(record) for _, record in numbered]
    words = [_words(text) for text in golds]
    examples = [
        _nq_open(number, record, golds, words, passages, options.seed)
        for number, record in choose("nq-open", options, numbered, path)
    ]
    chunking = "one chunk per passage, its title in the first line"
    return Task("nq-open", examples, _MAX_TOKENS, chunking, f"NQ-open, {path}")


def _gold(record: Record) -> str:
    held = [chunk for chunk in record.inner("ctxs") if chunk.fields.get("isgold", True)]
    if not held:
        raise BenchError(f"{record.place}: no passage is marked as gold: use the oracle file")
    return f"{held[0].get('title', str)}\n{held[0].get('text', str)}"


def _words(text: str) -> str:
    """LongBench's tokens, each between blanks, so that an answer's are found as whole words."""
    return f" {' '.join(longbench_tokens(text))} "


def _nq_open(number: int, record: Record, golds: Sequence[str], words: Sequence[str], count: int, seed: int) -> Example:
    rng = Random(f"nq-open/{seed}/{number}")
    answers = [str(answer) for answer in record.get("answers", list)]
    telling = [answer for answer in map(_words, answers) if answer.strip()]
    picked = {golds[number]: None}
    for other in rng.sample(range(len(golds)), len(golds)):
        if len(picked) == count:
            break
        if not any(answer in words[other] for answer in telling):
            picked[golds[other]] = None
    if len(picked) < count:
        raise BenchError(f"{record.place}: {len(picked) - 1} passages can stand beside the gold one: ask for fewer")
    texts = rng.sample(list(picked), count)
    gold = texts.index(golds[number])
    return over_passages("nq-open", f"nq-{number}", texts, record.get("question", str), answers, (gold,))
