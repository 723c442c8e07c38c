"""Biographies and the like: questions about the package's own notes, made by a seed."""

from typing import cast, get_args

from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.tasks.options import TaskOptions
from kvbind.bench.tasks.prompts import ONLY, document
from kvbind.bench.tasks.records import wanted
from kvbind.errors import BenchError
from kvbind.notes import KINDS, Sample, Split, make_sample

ALL = 100
"""How many examples there are where all are asked for: as many as KV Packet and SemPIC ask."""

SEEDS = 1_000_003
"""How far a seed's notes are from the next one's."""


def biographies(
    options: TaskOptions, *, notes: int = 5, kind: str = "biography", instruct: bool = False, split: str = "eval"
) -> Task:
    """Questions about made-up people, products or incidents.

    `kind`: biography, product, incident or any. `instruct` asks for the answer alone, which the bare question of the
    default does not. Names and values of the `split` train never occur in eval.
    """
    if split not in get_args(Split):
        raise BenchError(f"biographies:split={split}: choose {' or '.join(get_args(Split))}")
    if kind not in (*KINDS, "any"):
        raise BenchError(f"biographies:kind={kind}: choose {', '.join(KINDS)} or any")
    if notes < 1:
        raise BenchError(f"biographies:notes={notes}: ask for one or more")
    kinds = tuple(KINDS) if kind == "any" else (kind,)
    samples = [
        make_sample(options.seed * SEEDS + number, notes=notes, kinds=kinds, split=cast(Split, split))
        for number in range(wanted(options) or ALL)
    ]
    micro = "biography" if kind == "biography" else "whole"
    source = f"kvbind.notes, split {split}, seed {options.seed}"
    examples = [_example(options.seed, number, sample, instruct) for number, sample in enumerate(samples)]
    return Task("biographies", examples, 32, "one chunk per note", source, micro=micro)


def _example(seed: int, number: int, sample: Sample, instruct: bool) -> Example:
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
