"""Repair: time to first token by method, from memory and from a folder, and how much of the loading is hidden.

    python benchmarks/repair.py --documents 8
    python benchmarks/repair.py --size glyph --device cuda --dtype bfloat16 --documents 10 --characters 5500

Every method reads the same text documents; all figures are medians of one run, the methods asked in turn. "fed":
passages are read from the folder layer by layer, beside the computation; "at once": read whole before anything is
computed. Files lie in the page cache unless --cold drops them first.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from random_glyph import SIZES, build
from rich.console import Console
from rich.table import Table
from ttft import ONE, QUESTION, make_documents

from kvbind import Answer, Bank, Doc, Engine, Message
from kvbind import chat as chat_module
from kvbind.steps.fetch import fetch

METHODS = ("full", "template", "epic:16", "cacheblend", "qcfuse", "qcfuse-view")


def drop(folder: Path) -> None:
    """Ask the system to forget the bank's files, so that they come from the disk."""
    for file in folder.rglob("*.safetensors"):
        handle = os.open(file, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def forced(ask: Callable[[], Answer], fed: bool) -> Answer:
    """A request whose passages are fed layer by layer, or read whole first, whatever kvbind would do."""
    chat_module.fetch = lambda *arguments, lazily: fetch(*arguments, lazily=fed)
    try:
        return ask()
    finally:
        chat_module.fetch = fetch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--documents", type=int, default=8)
    parser.add_argument("--characters", type=int, default=2200, help="of one document")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="drop the files from the page cache before each request")
    parser.add_argument("--bank", type=Path, help="folder for the bank (default: a temporary one)")
    arguments = parser.parse_args()
    console = Console(width=160)
    backbone = build(arguments.size, arguments.device, getattr(torch, arguments.dtype))
    documents = make_documents(arguments.documents, arguments.characters)
    asked = [Message("user", [*(Doc(document.id) for document in documents), QUESTION])]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.bank or Path(temporary, "bank")
        memory, disk = Engine(backbone, weigh=False), Engine(backbone, Bank.open(folder, hot_bytes=0), weigh=False)
        for engine in (memory, disk):
            for method in METHODS[1:]:
                engine.compile(documents, method)

        def from_memory(method: str) -> Answer:
            return memory.ask(asked, method=method, sampling=ONE)

        def from_folder(method: str) -> Answer:
            if arguments.cold:
                drop(folder)
            return disk.ask(asked, method=method, sampling=ONE)

        found: dict[tuple[str, str], list[Answer]] = {}
        for repeat in range(arguments.repeats + 1):
            for method in METHODS:
                answers = {"memory": from_memory(method)}
                if method != "full":
                    answers["fed"] = forced(lambda method=method: from_folder(method), True)
                    answers["at once"] = forced(lambda method=method: from_folder(method), False)
                for place, answer in answers.items():
                    if repeat:  # the first round does not count
                        found.setdefault((method, place), []).append(answer)
    show(found, console)


def median(answers: list[Answer], figure: Callable[[Answer], float]) -> float:
    return statistics.median(map(figure, answers))


def show(found: dict[tuple[str, str], list[Answer]], console: Console) -> None:
    table = Table(title="TTFT in ms (× full prefill); loading: MB, ms it took beside the computation, ms waited for it")
    for heading in ("method", "memory", "fed", "at once", "select", "recomputed", "MB", "loading", "waited"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    full = median(found["full", "memory"], lambda answer: answer.ttft)
    for method in METHODS:
        places = [found.get((method, place)) for place in ("memory", "fed", "at once")]
        times = [median(answers, lambda answer: answer.ttft) if answers else None for answers in places]
        fed = found.get((method, "fed"), found[method, "memory"])
        figures = [
            f"{median(fed, lambda answer: answer.seconds.get('select', 0.0)) * 1e3:.0f}",
            f"{median(fed, lambda answer: answer.tokens['recomputed']):.0f}",
            f"{median(fed, lambda answer: answer.loading.bytes) / 1e6:.0f}",
            f"{median(fed, lambda answer: answer.loading.seconds) * 1e3:.0f}",
            f"{median(fed, lambda answer: answer.loading.waited) * 1e3:.0f}",
        ]
        shown = ["" if time is None else f"{time * 1e3:.0f} ({time / full:.3f})" for time in times]
        table.add_row(method, *shown, *figures)
    console.print(table)


if __name__ == "__main__":
    main()
