"""Key-value retrieval: the value of one UUID among many pairs of them, found letter by letter or not at all."""

import json
from itertools import pairwise
from random import Random

from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.tasks.options import TaskOptions
from kvbind.bench.tasks.prompts import document
from kvbind.bench.tasks.records import Record, choose, find, read_records
from kvbind.errors import BenchError

_MAX_TOKENS = 64
_NAME = "kv-retrieval"


def kv_retrieval(options: TaskOptions, *, pairs: int = 75, chunks: int = 5) -> Task:
    """Lost in the Middle's key-value retrieval: `pairs` UUIDs with values, drawn by the seed, in `chunks` objects."""
    if not 1 <= chunks <= pairs:
        raise BenchError(f"{_NAME}:pairs={pairs},chunks={chunks}: give one chunk or more, and a pair or more for each")
    names = [f"kv_retrieval/{_NAME}-75_keys.jsonl.gz", f"{_NAME}-75_keys.jsonl.gz"]
    source = "https://github.com/nelson-liu/lost-in-the-middle (kv_retrieval_data)"
    path = find(_NAME, options, names, source)
    numbered = list(enumerate(read_records(path)))
    chosen = choose(_NAME, options, numbered, path)
    examples = [_example(number, record, pairs, chunks, options.seed) for number, record in chosen]
    chunking = f"{pairs} pairs in {chunks} JSON objects, one chunk each"
    return Task(_NAME, examples, _MAX_TOKENS, chunking, f"Lost in the Middle, {path}")


def _example(number: int, record: Record, pairs: int, chunks: int, seed: int) -> Example:
    key, value = record.get("key", str), record.get("value", str)
    others = [tuple(pair) for pair in record.get("ordered_kv_records", list) if pair[0] != key]
    if len(others) < pairs - 1:
        raise BenchError(f"{record.place}: has {len(others) + 1} pairs, {pairs} are asked for: ask for fewer")
    rng = Random(f"{_NAME}/{seed}/{number}")
    held = [(key, value), *rng.sample(others, pairs - 1)]
    rng.shuffle(held)
    ends = [pairs * part // chunks for part in range(chunks + 1)]
    parts = [held[start:end] for start, end in pairwise(ends)]
    gold = next(place for place, part in enumerate(parts) if (key, value) in part)
    return Example(
        f"kv-{number}",
        tuple(document(_NAME, json.dumps(dict(part), indent=0)) for part in parts),
        key,
        *_prompts(key),
        answers=(value,),
        gold=(gold,),
        facts={"pair": held.index((key, value))},
    )


def _prompts(key: str) -> tuple[Prompt, Prompt]:
    task = "Extract the value corresponding to the specified key in the JSON data"
    after = f'Key: "{key}"\nCorresponding value:'
    return Prompt(f"{task} below.\n\nJSON data:\n", after), Prompt("", f"{task} in the images.\n\n{after}")
