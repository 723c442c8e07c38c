"""`kvbind train`."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbind.cli import options
from kvbind.cli.terminal import INTERRUPTED, console, count, duration, plain_table, progress_display, warn
from kvbind.cli.training import data_options, size_options, step_options

if TYPE_CHECKING:
    from rich.progress import Progress

    from kvbind.train.data import DataSet
    from kvbind.train.settings import Settings
    from kvbind.writers import Kind, TrainedWriter

SERVED_AS = {"writer": "sempic", "packet": "kv-packet", "joint": "joint"}


@click.command(short_help="Train a writer.")
@click.argument("kind", type=click.Choice(list(SERVED_AS)))
@click.option("--model", required=True, metavar="M", help="Model folder or hub id.")
@click.option(
    "--data",
    required=True,
    multiple=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="JSON Lines file, or folder of them; may be repeated. Each file is a data set, and all are mixed.",
)
@click.option(
    "--out", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of the run and its writer."
)
@size_options
@step_options
@data_options
@click.option("--device", default="cpu", show_default=True, metavar="NAME", help="Such as cpu or cuda:0.")
@click.option(
    "--dtype",
    default="auto",
    show_default=True,
    metavar="TYPE",
    help="Number format of the model, now and when it serves: auto (its own), float32, bfloat16 or float16.",
)
@options.debug
def train(kind: "Kind", model: str, data: tuple[Path, ...], out: Path, device: str, dtype: str, **given: Any) -> None:
    """Train what compiles documents, so that a reader of its passages answers as one of the whole context does.

    KIND is "writer" (a LoRA, after SemPIC), "packet" (soft rows around each document, after KV Packet) or "joint"
    (both). The model itself stays as it is. A line of data is
    {"documents": ["...", "..."], "question": "...", "answer": "..."}; the answer is for scores, and may be left out.

    \b
    kvbind train writer --model Qwen/Qwen3-0.6B --data notes.jsonl --out my-writer
    kvbind compile docs/ --bank my-bank --model Qwen/Qwen3-0.6B --method sempic:adapter=my-writer

    Interrupt it at any time, and run the same command again to go on.
    """
    from kvbind.train.data import read_data

    sets = read_data(data, held_out=given.pop("held_out"), samples=given.pop("samples"), seed=given["seed"])
    settings, run = _settings(kind, device, given), {"lessons": given["lessons"], "evaluations": given["evaluations"]}
    done: list[str] = []
    try:
        trained = _train(sets, out, settings, {"model": model, "device": device, "dtype": dtype}, run, done)
    except KeyboardInterrupt:
        where = f" at {done[-1]}" if done else ""
        click.echo(f"interrupted{where}: what is done is kept; run the same command again to go on", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    _summarise(kind, out, trained)


def _settings(kind: "Kind", device: str, given: dict[str, Any]) -> "Settings":
    from kvbind.train.settings import BATCH, EPOCHS, Settings
    from kvbind.train.teacher import Teaching

    teaching = Teaching(given["max_tokens"], given["top"], given["answers"] == "data")
    names = ("lr", "group", "rank", "alpha", "soft", "frame", "seed")
    chosen = given["checkpointing"] if given["checkpointing"] is not None else not device.startswith("cpu")
    epochs, batch = given["epochs"] or EPOCHS[kind], given["batch"] or BATCH[kind]
    rest = {name: given[name] for name in names}
    return Settings(kind, epochs, batch, **rest, checkpointing=chosen, teaching=teaching)


def _train(
    sets: "list[DataSet]",
    out: Path,
    settings: "Settings",
    model: dict[str, str],
    run: dict[str, Any],
    done: list[str],
) -> "TrainedWriter":
    """Load the model and train; `done` hears how far it came."""
    from kvbind.engine import Engine
    from kvbind.train.loop import Options, train

    with _stoppable() as stop, progress_display() as progress:
        loading = progress.add_task(f"loading {model['model']}", total=None, counts="")
        engine = Engine.from_pretrained(model["model"], device=model["device"], dtype=model["dtype"])
        progress.remove_task(loading)

        def tell(what: str, at: int, total: int, note: str) -> None:
            done.append(f"{what} {at:,}/{total:,}")
            _show(progress, what, at, total, note)

        options = Options(run["lessons"] or out / "teacher", run["evaluations"])
        return train(engine.library, sets, out, settings, options, source=model["model"], tell=tell, stop=stop)


def _show(progress: "Progress", what: str, at: int, total: int, note: str) -> None:
    """One bar for each kind of work."""
    task = next((task.id for task in progress.tasks if task.description == what), None)
    if task is None:
        task = progress.add_task(what, total=total, counts="")
    progress.update(task, completed=at, total=total, counts=f"{at:,}/{total:,} {note}")


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Whether to stop: the first Ctrl-C or SIGTERM asks for it, a second one interrupts on the spot."""
    asked: list[int] = []

    def ask(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        click.echo("stopping after this step (Ctrl-C again: at once)", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summarise(kind: str, out: Path, trained: "TrainedWriter") -> None:
    facts = trained.training
    examples = sum(part["training"] for part in facts["data"])
    loss = facts["loss"]
    fell = f", KL to full prefill {loss['first']:.4f} at first, {loss['last']:.4f} at last" if loss else ""
    steps = f"{count(facts['steps'], 'step')} in {duration(facts['seconds'])}"
    click.echo(f"{kind}: {count(examples, 'example')}, {steps}{fell}")
    evaluations = facts["evaluations"]
    if evaluations:
        first, last = evaluations[0], evaluations[-1]
        table = plain_table("held out", right=("LongBench F1", "corpus micro-F1"))
        rows = {"full prefill": first["full"], "naive stitching": first["naive"], "before training": first["scores"]}
        for name, found in {**rows, "after training": last["scores"]}.items():
            table.add_row(name, f"{found['f1']:.1f}", f"{found['micro_f1']:.1f}")
        console().print(table)
        if last["scores"]["f1"] < first["naive"]["f1"]:
            warn("its passages are read worse than naive ones: train longer, on more data, or with another lr")
    click.echo(f"use it with --method {SERVED_AS[kind]}:adapter={out}")
