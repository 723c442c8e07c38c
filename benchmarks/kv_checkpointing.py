"""Memory and time of a training pass of a LoRA writer against the document's length, with and without KV checkpointing.

    python benchmarks/kv_checkpointing.py                                  a small random model on the CPU, minutes
    python benchmarks/kv_checkpointing.py --size glyph --device cuda --dtype bfloat16 --lengths 1024 4096 16384

One pass: one document written, stitched and read with a question and an answer, the loss, and its gradients. On a CPU
memory is what the forward pass keeps for the backward pass, weights not counted, by a saved-tensors hook, and time is
the processor's. On CUDA memory is the allocator's peak over both passes, above what lay there before.
"""

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from random_glyph import SIZES, WORDS, build
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from kvbind import Bank
from kvbind.models import TARGETS, Backbone, new_writer
from kvbind.relevance import LexicalEmbedder
from kvbind.steps.library import Library
from kvbind.steps.read import read
from kvbind.train.checkpointing import read_checkpointed
from kvbind.train.data import Example
from kvbind.train.loop import distance
from kvbind.train.student import Student
from kvbind.train.teacher import Lesson, Teaching, make_lesson
from kvbind.writers import WriterConfig

CONFIG = WriterConfig("writer", rank=8, alpha=16, targets=TARGETS)
FORWARDS = {"plain": read, "checkpointed": read_checkpointed}


def make_example(backbone: Backbone, tokens: int) -> Example:
    """A question over one document of about so many tokens."""
    draw, words = random.Random(0), ["Passage."]
    while len(backbone.tokens(" ".join(words))) < tokens:
        words += draw.choices(WORDS, k=max(1, tokens // 40))
    return Example((" ".join(words),), "According to the passage above, who first saw the storm?")


class Kept:
    """Bytes that autograd keeps, each storage once, without the model's own weights."""

    def __init__(self, backbone: Backbone) -> None:
        self.own = {weight.untyped_storage().data_ptr() for weight in backbone.model.parameters()}
        self.seen: dict[int, int] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.own:
            self.seen[storage.data_ptr()] = storage.nbytes()
        return tensor


def one_pass(student: Student, batch: list[tuple[Example, Lesson]]) -> tuple[int, float]:
    """Bytes and seconds of one pass, forward and backward."""
    device = student.backbone.device
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    clock = time.perf_counter if cuda else time.process_time  # of a CPU that others use too
    kept, start = Kept(student.backbone), clock()
    if cuda:
        distance(student, batch).backward()
        torch.cuda.synchronize(device)
    else:
        with saved_tensors_hooks(kept.pack, lambda tensor: tensor):
            loss = distance(student, batch)
        loss.backward()
    seconds = clock() - start
    return (torch.cuda.max_memory_allocated(device) - before if cuda else sum(kept.seen.values())), seconds


def measure(backbone: Backbone, tokens: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Bytes and median seconds of both, one of each in turn, after one round that does not count."""
    library = Library(backbone, Bank.memory(), LexicalEmbedder())
    example = make_example(backbone, tokens)
    batch = [(example, make_lesson(library, example, Teaching(max_tokens=16)))]
    writer = new_writer(backbone, f"bench{len(backbone.adapters.names)}", CONFIG)
    parameters = writer.parameters()
    runs: dict[str, list[tuple[int, float]]] = {name: [] for name in FORWARDS}
    for _ in range(repeats + 1):
        for name, forward in FORWARDS.items():
            runs[name].append(one_pass(Student(library, CONFIG, writer, forward), batch))
            for parameter in parameters:
                parameter.grad = None
    rows = len(backbone.tokens(example.documents[0]))
    return {
        name: {"rows": rows, "bytes": found[-1][0], "seconds": statistics.median(s for _, s in found[1:])}
        for name, found in runs.items()
    }


def show(results: list[dict[str, dict[str, Any]]], console: Console) -> None:
    table = Table(title="One training pass of a LoRA writer over one document")
    for heading in (
        "document, tokens",
        "plain, MB",
        "checkpointed, MB",
        "share",
        "plain, s",
        "checkpointed, s",
        "times",
    ):
        table.add_column(heading, justify="right")
    for found in results:
        plain, other = found["plain"], found["checkpointed"]
        megabytes = [f"{run['bytes'] / 1e6:,.1f}" for run in (plain, other)]
        seconds = [f"{run['seconds']:.2f}" for run in (plain, other)]
        share, times = other["bytes"] / plain["bytes"], other["seconds"] / plain["seconds"]
        table.add_row(f"{plain['rows']:,}", *megabytes, f"{share:.0%}", *seconds, f"{times:.2f}×")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024, 2048])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write all figures there")
    arguments = parser.parse_args()
    console = Console(width=140)
    backbone = build(arguments.size, arguments.device, getattr(torch, arguments.dtype))
    results = []
    for tokens in arguments.lengths:
        results.append(measure(backbone, tokens, arguments.repeats))
        console.print(f"{tokens} tokens done")
    show(results, console)
    if arguments.json:
        facts = {"arguments": vars(arguments), "torch": torch.__version__, "python": sys.version}
        arguments.json.write_text(json.dumps({"facts": facts, "results": results}, indent=2, default=str))


if __name__ == "__main__":
    main()
