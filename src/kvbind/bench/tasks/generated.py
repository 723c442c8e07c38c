"""Biographies and the like: questions about the package's own notes, made by a seed."""

from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.tasks.options import TaskOptions
from kvbind.bench.tasks.prompts import ONLY, document
from kvbind.bench.tasks.records import wanted
from kvbind.errors import BenchError
from kvbind.notes import KINDS, make_sample

ALL = 100
"""How many examples there are where all are asked for: as many as KV Packet and SemPIC ask."""

_SEEDS = 1_000_003  # a seed's notes are far from the next one's


def biographies(options: TaskOptions, *, notes: int = 5, kind: str = "biography", instruct: bool = False) -> Task:
    """Questions about made-up people, products or incidents; names and values are those of the split for evaluation.

    `kind`: biography, product, incident or any. `instruct` asks for the answer alone, which the bare question of the
    default does not.
    """
    if kind not in (*KINDS, "any"):
        raise BenchError(f"biographies:kind={kind}: choose {', '.join(KINDS)} or any")
    if notes < 1:
        raise BenchError(f"biographies:notes={notes}: ask for one or more")
    kinds = tuple(KINDS) if kind == "any" else (kind,)
    examples = [_example(options.seed, number, notes, kinds, instruct) for number in range(wanted(options) or ALL)]
    micro = "biography" if kind == "biography" else "whole"
    source = f"kvbind.notes, split eval, seed {options.seed}"
    return Task("biographies", examples, 32, "one chunk per note", source, micro=micro)


def _example(seed: int, number: int, notes: int, kinds: tuple[str, ...], instruct: bool) -> Example:
    sample = make_sample(seed * _SEEDS + number, notes=notes, kinds=kinds, split="eval")
    prompt = Prompt("", f"{ONLY}\n\nQuestion: {sample.question}\nAnswer:" if instruct else sample.question)
    return Example(
        f"biographies-{seed}-{number}",
        tuple(document("biographies", note.text) for note in sample.notes),
        sample.question,
        prompt,
        prompt,
        (sample.answer,),
        (sample.gold,),
        {"kind": sample.kind, "attribute": sample.attribute},
    )
