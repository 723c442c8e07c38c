"""Trains the pocket reader; stop it at any time, and the same command goes on from its checkpoint.

python training/pocket/train.py FOLDER --english BOOK.txt --hours 10
"""

import argparse
import json
import shutil
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import forward
import torch
from batches import Tokens
from heldout import held_out
from model import train_tokenizer
from pages import Pages
from reader import Reader
from steps import advance, measure, one_step
from transformers import AutoTokenizer

from kvbind.builtin import BUILT_IN

START = Path(__file__).parent / "start"
"""What stands beside the model that ships, so that it can be trained on."""
SHIPPED = BUILT_IN["pocket"]


def rate(reader: Reader, arguments: argparse.Namespace, spent: float) -> float:
    """Share of the full learning rate: up over the first steps, flat, then down over the last part of the budget."""
    left = 1 - spent / (arguments.hours * 3600)
    return min(1.0, (reader.step - reader.begun + 1) / 60, max(0.05, left / arguments.decay))


def prepare(arguments: argparse.Namespace) -> tuple[Reader, Pages, Tokens]:
    """The reader as its checkpoint left it, or new, with what draws its pages, and its tokenizer."""
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "tokenizer").exists() and arguments.start.exists():
        AutoTokenizer.from_pretrained(SHIPPED).save_pretrained(folder / "tokenizer")
        shutil.copy(arguments.start / "log.jsonl", folder / "log.jsonl")
    if not (folder / "tokenizer").exists():
        train_tokenizer(arguments.english.read_text()).save_pretrained(folder / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    reader = Reader(tokenizer, arguments)
    if (folder / "last.pt").exists():
        reader.load(torch.load(folder / "last.pt", map_location=reader.device, weights_only=True))
    elif arguments.start.exists():
        reader.read_start(arguments.start, SHIPPED)
    return reader, Pages(tokenizer), Tokens(tokenizer)


def clock(arguments: argparse.Namespace) -> float:
    """Seconds of training: on a CPU those that were computed, whatever else the machine did meanwhile."""
    return time.process_time() / arguments.threads if arguments.device == "cpu" else time.perf_counter()


def update(reader: Reader, factor: float, lr: float) -> None:
    """Move the weights along their gradients, and clear these."""
    for optimizer in reader.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = lr * factor
        optimizer.step()
        optimizer.zero_grad()


def train(arguments: argparse.Namespace) -> None:
    """Go on until the time is used up, or until SIGTERM or SIGINT; either leaves a checkpoint."""
    reader, pages, tokens = prepare(arguments)
    tests = {notes: held_out(tokens, notes) for notes in (1, 5, 12)}
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stopped.append(received))
    spent, due = 0.0, {"log": arguments.every, "measure": arguments.measure, "save": 300.0}
    sums: dict[str, list[float]] = defaultdict(list)
    while spent < arguments.hours * 3600 and not stopped:
        start, factor = clock(arguments), rate(reader, arguments, spent)
        for name, value in one_step(reader, pages, tokens, arguments).items():
            sums[name].append(value)
        update(reader, factor, arguments.lr)
        advance(reader)
        took = clock(arguments) - start
        spent, reader.step, reader.seconds = spent + took, reader.step + 1, reader.seconds + took
        if spent > due["log"]:
            log(reader, arguments.folder, sums, factor)
            sums.clear()
            due["log"] = spent + arguments.every
        if spent > due["measure"]:
            write(arguments.folder, {**moment(reader), **measure(reader, tests, arguments)})
            due["measure"] = spent + arguments.measure
        if spent > due["save"]:
            save(reader, arguments.folder, factor)
            due["save"] = spent + 300.0
    write(arguments.folder, {**moment(reader), **measure(reader, tests, arguments)})
    save(reader, arguments.folder, rate(reader, arguments, spent))


def moment(reader: Reader) -> dict[str, Any]:
    """How far training has come."""
    return {"step": reader.step, "hours": round(reader.seconds / 3600, 4)}


def log(reader: Reader, folder: Path, sums: dict[str, list[float]], factor: float) -> None:
    """Write mean losses since the last line, levels, and running means."""
    losses = {name: round(sum(values) / len(values), 4) for name, values in sums.items()}
    levels = {str(shown or "text"): level for shown, level in reader.level.items()}
    means = {name: round(value, 3) for name, value in sorted(reader.mean.items())}
    write(folder, {**moment(reader), **losses, "level": levels, **means, "rate": round(factor, 3)})


def write(folder: Path, record: dict[str, Any]) -> None:
    """A line of the log."""
    line = json.dumps(record)
    with (folder / "log.jsonl").open("a") as file:
        file.write(line + "\n")
    print(line, flush=True)


def save(reader: Reader, folder: Path, factor: float) -> None:
    """Write a checkpoint, whole or not at all: `decayed.pt` once the rate falls, since one goes on from before that."""
    path = folder / ("last.pt" if factor == 1.0 or reader.step < 60 else "decayed.pt")
    torch.save(reader.state(), path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def arguments_of(words: list[str] | None = None) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="checkpoints, logs and tokenizer")
    parser.add_argument(
        "--start",
        type=Path,
        default=START,
        help="where the model that ships goes on from (a folder that is not: a new one)",
    )
    parser.add_argument("--english", type=Path, help="a text of ordinary English for the tokenizer")
    parser.add_argument(
        "--hours", type=float, default=10.0, help="time budget of this call; on a CPU, hours of computing"
    )
    parser.add_argument("--decay", type=float, default=0.2, help="last part of the budget, over which the rate falls")
    parser.add_argument("--size", default="cpu", choices=("cpu", "gpu"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--vision-rate", type=float, default=0.2, help="share of it for the vision tower's matrices")
    parser.add_argument("--rows", type=int, default=6000, help="rows of one step")
    parser.add_argument("--warm", type=int, default=12, help="pages of one step while the vision tower is warmed up")
    parser.add_argument("--only", choices=("vision",), help="train the vision tower alone, to name what pages hold")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between lines of the log")
    parser.add_argument("--measure", type=float, default=1200.0, help="seconds between measurements on held-out notes")
    parser.add_argument("--compile", action="store_true", help="fuse the layers: two minutes, then faster steps")
    parser.add_argument("--bf16", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args(words)


def main() -> None:
    """Read the arguments, and train."""
    arguments = arguments_of()
    torch.set_num_threads(arguments.threads)
    if arguments.compile:
        forward.compile_layers()
    train(arguments)


if __name__ == "__main__":
    main()
