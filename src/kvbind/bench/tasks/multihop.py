"""Questions over several paragraphs: HotpotQA and MuSiQue in their own formats, and CacheBlend's MuSiQue."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.tasks.options import TaskOptions
from kvbind.bench.tasks.prompts import over_passages
from kvbind.bench.tasks.records import Record, choose, find, read_records
from kvbind.errors import BenchError

T = TypeVar("T")
_PARAGRAPHS = "one chunk per paragraph, its title in the first line"
_SHORT = 32


def hotpotqa(options: TaskOptions, *, paragraphs: int = 0, steps: bool = False) -> Task:
    """HotpotQA's own JSON.

    `paragraphs`: so many of an example's, in an order drawn by the seed, among them every gold one; 0: all, as they
    stand. `steps`: reasoning before the answer, as KV Packet has it; what follows "Answer:" is scored then.
    """
    names = ["hotpot_dev_distractor_v1.json", "hotpotqa.json", "hipporag/hotpotqa_train.json"]
    path = find("hotpotqa", options, names, "https://hotpotqa.github.io")
    chosen = choose("hotpotqa", options, read_records(path), path)
    examples = [_hotpotqa(record, options.seed, _checked("hotpotqa", paragraphs)) for record in chosen]
    return _with_steps(Task("hotpotqa", examples, _SHORT, _PARAGRAPHS, f"HotpotQA, {path}"), 512 if steps else 0)


def musique(options: TaskOptions, *, paragraphs: int = 0, steps: bool = False) -> Task:
    """MuSiQue's own JSON Lines, or a list of its records; without the questions that cannot be answered.

    Parameters as for `hotpotqa`.
    """
    names = ["musique_ans_v1.0_dev.jsonl", "musique.jsonl", "hipporag/musique_train.json"]
    path = find("musique", options, names, "https://github.com/StonyBrookNLP/musique")
    records = [record for record in read_records(path) if record.fields.get("answerable") is not False]
    chosen = choose("musique", options, records, path)
    examples = [_musique(record, options.seed, _checked("musique", paragraphs)) for record in chosen]
    return _with_steps(Task("musique", examples, _SHORT, _PARAGRAPHS, f"MuSiQue, {path}"), 256 if steps else 0)


def cacheblend_musique(options: TaskOptions, *, chunks: int = 10) -> Task:
    """CacheBlend's MuSiQue: its own chunks of about 512 tokens, the first `chunks` of them."""
    names = ["cacheblend/musique_s.json", "musique_s.json"]
    path = find("cacheblend-musique", options, names, "https://github.com/YaoJiayi/CacheBlend (inputs)")
    if chunks < 1:
        raise BenchError(f"cacheblend-musique:chunks={chunks}: ask for one or more")
    numbered = list(enumerate(read_records(path)))
    examples = [
        _cacheblend(number, record, chunks) for number, record in choose("cacheblend-musique", options, numbered, path)
    ]
    words = f"CacheBlend's own chunks of about 512 tokens, the first {chunks}"
    return Task("cacheblend-musique", examples, _SHORT, words, f"CacheBlend, {path}")


def pick(items: Sequence[T], gold: set[int], count: int, rng: Random) -> tuple[list[T], tuple[int, ...]]:
    """`count` items in a drawn order and the places of the gold ones, which always stay; all as they are if 0."""
    kept = list(range(len(items)))
    if count:
        others = [number for number in kept if number not in gold]
        kept = sorted(gold) + rng.sample(others, max(0, min(count - len(gold), len(others))))
        rng.shuffle(kept)
    return [items[number] for number in kept], tuple(place for place, number in enumerate(kept) if number in gold)


def _checked(task: str, paragraphs: int) -> int:
    if paragraphs < 0:
        raise BenchError(f"{task}:paragraphs={paragraphs}: give a number of paragraphs, or 0 for all")
    return paragraphs


def _hotpotqa(record: Record, seed: int, count: int) -> Example:
    name, question = record.get("_id", str), record.get("question", str)
    try:
        gold = {title for title, _ in record.get("supporting_facts", list)}
        shown = [(str(title), "".join(parts)) for title, parts in record.get("context", list)]
    except (TypeError, ValueError) as error:
        raise BenchError(f"{record.place}: not HotpotQA's own format (lists of title and sentences)") from error
    places = {number for number, (title, _) in enumerate(shown) if title in gold}
    picked, where = pick(shown, places, count, Random(f"hotpotqa/{seed}/{name}"))
    facts: dict[str, Any] = {key: record.fields[key] for key in ("type", "level") if key in record.fields}
    answers = (record.get("answer", str),)
    return over_passages("hotpotqa", name, _titled(picked), question, answers, where, facts)


def _musique(record: Record, seed: int, count: int) -> Example:
    name, question = record.get("id", str), record.get("question", str)
    items = record.inner("paragraphs")
    shown = [(item.get("title", str), item.get("paragraph_text", str)) for item in items]
    places = {number for number, item in enumerate(items) if item.fields.get("is_supporting")}
    picked, where = pick(shown, places, count, Random(f"musique/{seed}/{name}"))
    answers = (record.get("answer", str), *map(str, record.fields.get("answer_aliases", ())))
    hops = name.partition("hop")[0]  # "2hop__…", "3hop1__…"
    facts = {"hops": int(hops)} if hops.isdigit() else {}
    return over_passages("musique", name, _titled(picked), question, answers, where, facts)


def _cacheblend(number: int, record: Record, chunks: int) -> Example:
    shown = [(chunk.get("title", str), chunk.get("text", str)) for chunk in record.inner("ctxs")[:chunks]]
    question, answers = record.get("question", str), tuple(map(str, record.get("answers", list)))
    return over_passages("cacheblend-musique", f"musique_s-{number}", _titled(shown), question, answers)


def _titled(shown: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{title}\n{text.strip()}".strip() for title, text in shown]


def _with_steps(task: Task, max_tokens: int) -> Task:
    """The task with reasoning before the answer, as KV Packet and SemPIC ask; unchanged if `max_tokens` is 0."""
    if not max_tokens:
        return task
    examples = [_reasoned(example) for example in task.examples]
    return replace(task, examples=examples, max_tokens=max_tokens, micro="answer")


def _reasoned(example: Example) -> Example:
    prompt = Prompt(
        "",
        f"Answer the question from the passages above.\nQuestion: {example.query}\nThink step by step, and end with a "
        "line that says: Answer: <the final answer>",
    )
    return replace(example, text=prompt, pages=prompt)
