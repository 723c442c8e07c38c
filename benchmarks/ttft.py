"""Time to first token against the number of documents: full prefill, reuse, and the floor, side by side in one run.

    python benchmarks/ttft.py                                              a small random model on the CPU, minutes
    python benchmarks/ttft.py --size glyph --device cuda --dtype bfloat16 --documents 10 --full-pages

The floor is the forward pass of the question's own rows over the same keys and values already in place: no method
that computes the question can be faster. All figures of a row are medians of the same run; quote the ratios.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from random_glyph import SIZES, WORDS, build
from rich.console import Console
from rich.table import Table

from kvbind import Bank, Doc, Document, Engine, Message, Sampling
from kvbind.chat import Chat
from kvbind.models import Backbone
from kvbind.steps.clock import Stopwatch
from kvbind.steps.read import read_fresh

QUESTION = "According to the passages above, who first saw the storm, and at what time did it reach the harbour?"
ONE = Sampling(max_tokens=1)


def make_documents(count: int, characters: int) -> list[Document]:
    """Documents of random English words, about `characters` long."""
    draw = random.Random(0)
    documents = []
    for number in range(count):
        words = [f"Passage {number}."]
        while sum(map(len, words)) + len(words) < characters:
            words.append(draw.choice(WORDS) + ("." if draw.random() < 0.08 else ""))
        documents.append(Document(f"passage-{number}", " ".join(words)))
    return documents


def ask(engine: Engine, ids: list[str], method: str) -> Chat:
    chat = engine.chat(method=method)
    answer = chat.ask([Message("user", [*map(Doc, ids), QUESTION])], sampling=ONE)
    missed = [source for source in answer.sources if source.state == "compiled now"]
    assert not missed, "everything was compiled before"
    return chat


def ttft(engine: Engine, ids: list[str], method: str) -> float:
    """Seconds from the request to first-token logits, as the engine's own stopwatch has it."""
    return engine.ask([Message("user", [*map(Doc, ids), QUESTION])], method=method, sampling=ONE).ttft


def floor(engine: Engine, ids: list[str], method: str) -> Callable[[], float]:
    """The question's forward alone, over keys and values already in place."""
    chat = ask(engine, ids, method)

    def once() -> float:
        assert chat.context is not None
        assert chat.turn is not None
        watch = Stopwatch(engine.backbone.device)
        with watch.step("read"), torch.no_grad():
            read_fresh(engine.backbone, chat.context, chat.turn.layout)
        return watch.seconds["read"]

    return once


def measure(runs: dict[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """Median seconds of each, one of each in turn, after one round that does not count."""
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(run())
    return {name: statistics.median(values) for name, values in times.items()}


def measure_documents(
    memory: Engine, disk: Engine, ids: list[str], repeats: int, full_repeats: int, full_pages: bool
) -> dict[str, float]:
    """All figures for one number of documents, in seconds."""
    full = {"full text": lambda: ttft(memory, ids, "full")}
    if full_pages:
        full["full pages@72"] = lambda: ttft(memory, ids, "full:dpi=72")
    reuse = {}
    for method in ("template", "qv-pic"):
        reuse[f"{method} floor"] = floor(memory, ids, method)
        reuse[f"{method} memory"] = lambda method=method: ttft(memory, ids, method)
        reuse[f"{method} disk"] = lambda method=method: ttft(disk, ids, method)
    return {**measure(reuse, repeats), **measure(full, full_repeats)}


def show(rows: dict[int, dict[str, float]], console: Console) -> None:
    table = Table(title="TTFT in ms; × is the ratio to the floor (reuse) or to full prefill of text (last columns)")
    names = list(next(iter(rows.values())))
    for heading in ["documents", *names, "template ×", "qv-pic ×"]:
        table.add_column(heading, justify="right")
    for count, times in rows.items():
        cells = []
        for name in names:
            method, _, kind = name.rpartition(" ")
            ratio = f" ({times[name] / times[f'{method} floor']:.2f}×)" if kind in ("memory", "disk") else ""
            cells.append(f"{times[name] * 1e3:.1f}{ratio}")
        shares = [f"{times[f'{method} memory'] / times['full text']:.3f}" for method in ("template", "qv-pic")]
        table.add_row(str(count), *cells, *shares)
    console.print(table)
    if len(rows) > 1:
        (few, first), (many, last) = min(rows.items()), max(rows.items())
        full = (last["full text"] - first["full text"]) / (many - few)
        for method in ("template", "qv-pic"):
            name = f"{method} memory"
            added = (last[name] - first[name]) / (many - few)
            console.print(
                f"{method}: {added * 1e3:.2f} ms per added document, {added / full:.1%} of full prefill's "
                f"{full * 1e3:.1f} ms"
            )


def compile_all(engine: Engine, documents: list[Document], console: Console) -> None:
    for method in ("template", "qv-pic"):
        report = engine.compile(documents, method)
        console.print(
            f"compiled {report.compiled} passages for {method}: {report.rows} tokens, {report.bytes / 1e6:.1f} MB, "
            f"{report.seconds:.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--documents", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--characters", type=int, default=2200, help="of one document; a full page holds about 6,000")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--full-repeats", type=int, default=1)
    parser.add_argument("--full-pages", action="store_true", help="also full prefill over page images at 72 DPI")
    parser.add_argument("--bank", type=Path, help="folder for the directory bank (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="also write all figures there")
    arguments = parser.parse_args()
    console = Console(width=200)
    backbone: Backbone = build(arguments.size, arguments.device, getattr(torch, arguments.dtype))
    documents = make_documents(max(arguments.documents), arguments.characters)
    console.print(f"{arguments.size}: {sum(p.numel() for p in backbone.model.parameters()) / 1e6:.0f} M parameters")
    with tempfile.TemporaryDirectory() as temporary:
        memory = Engine(backbone, Bank.memory())
        disk = Engine(backbone, Bank.open(arguments.bank or Path(temporary, "bank"), hot_bytes=0))
        for engine in (memory, disk):
            compile_all(engine, documents, console)
        rows = {}
        for count in arguments.documents:
            ids = [document.id for document in documents[:count]]
            rows[count] = measure_documents(
                memory, disk, ids, arguments.repeats, arguments.full_repeats, arguments.full_pages
            )
            console.print(f"{count} documents done")
    show(rows, console)
    if arguments.json:
        facts = {"arguments": vars(arguments), "torch": torch.__version__, "python": sys.version, "at": time.time()}
        arguments.json.write_text(json.dumps({"facts": facts, "seconds": rows}, indent=2, default=str))


if __name__ == "__main__":
    main()
