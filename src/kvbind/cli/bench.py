"""`kvbind bench`: methods against each other, quality and time, and the report."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbind.cli import options
from kvbind.cli.spellings import split_spellings
from kvbind.cli.terminal import console, count, plain_table, run_display, warn_damage

if TYPE_CHECKING:
    from kvbind.bench.example import Task
    from kvbind.bench.records import Record
    from kvbind.bench.run import Options
    from kvbind.cli.settings import Settings
    from kvbind.engine import Engine

SPELLINGS = "several with ; between them, or with commas where each name is known; may be repeated"

data_folder = click.option(
    "--data",
    metavar="DIR",
    envvar="KVBIND_DATA",
    show_envvar=True,
    type=click.Path(path_type=Path),
    help="Folder of the tasks' data; tasks that make their own need none.",
)


@click.group(short_help="Measure methods against each other.")
def bench() -> None:
    """Measure methods against each other: quality and time on the same examples, and a report of both."""


@bench.command("run", short_help="Ask a task's examples by several methods.")
@click.option("--methods", "methods", metavar="M", multiple=True, required=True, help=f"Methods: {SPELLINGS}.")
@click.option("--tasks", "tasks", metavar="T", multiple=True, required=True, help=f"Tasks: {SPELLINGS}.")
@click.option("--out", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of the records.")
@click.option("--n", type=click.IntRange(1), metavar="N", help="Examples of each task.  [default: all]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which examples, and their order.")
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Warm requests timed for each example."
)
@click.option("--max-tokens", type=click.IntRange(1), help="Longest answer.  [default: as each task says]")
@data_folder
@click.option(
    "--bank",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder of the bank.  [default: in memory, where no request is cold]",
)
@click.option("--forget", is_flag=True, help="Remove documents from the bank when no further example shows them.")
@options.model_options
@options.page_options
@options.debug
def run(bank: Path | None, out: Path, device: str, **given: Any) -> None:
    """Ask every example of every task by every method, and record answers, scores, timings and what was reused.

    Documents are compiled first, each cost noted once. Then all methods ask in turn: cold (passages read from the
    disk) where the bank is a folder, and warm. Interrupt a run at any time: the same command goes on with it.

    \b
    kvbind bench run --model M --methods "full;template;dummy:k=4" --tasks hotpotqa --n 50 --out runs/text
    kvbind bench run --model V --methods "full:dpi=72;qv-pic:alpha=0.65,budget=4" --tasks biographies --out runs/pages
    kvbind bench report runs/text runs/pages --out report
    """
    from kvbind.bench.run import Options
    from kvbind.bench.tasks import task_names
    from kvbind.cli.settings import ready_method, remembered, resolve
    from kvbind.errors import BenchError
    from kvbind.methods import factories

    spelled = split_spellings(given.pop("methods"), factories())
    tasks = split_spellings(given.pop("tasks"), task_names())
    data, longest = given.pop("data"), given.pop("max_tokens")
    unknown = [spelling for spelling in tasks if spelling.partition(":")[0] not in task_names()]
    if unknown:
        raise BenchError(f"unknown task {unknown[0]!r}: `kvbind bench tasks` lists them")
    drawn = Options(tuple(spelled), **{name: given.pop(name) for name in ("n", "seed", "repeats", "forget")})
    settings = resolve(remembered(bank) if bank else {}, methods=spelled, **given)
    for spelling in settings.methods:
        ready_method(spelling, settings.page)
    records = _run(settings, bank, device, lambda engine: _load(engine, tasks, data, longest, drawn), drawn, out)
    failed = sum("error" in record for record in records)
    click.echo(f"{count(len(records), 'record')} in {out}, {failed:,} of them failures: kvbind bench report {out}")


def _run(
    settings: "Settings",
    folder: Path | None,
    device: str,
    load: "Callable[[Engine], list[Task]]",
    drawn: "Options",
    out: Path,
) -> "list[Record]":
    from kvbind.bank import Bank
    from kvbind.bench.run import run
    from kvbind.cli.settings import load_engine

    shown = console(err=True)
    with Bank.open(folder) if folder else Bank.memory() as opened:
        with shown.status(f"loading {settings.model}"):
            engine = load_engine(opened, settings, device)
        tasks = load(engine)
        with run_display() as tell:
            records = run(engine, tasks, drawn, out, tell)
        warn_damage(list(opened.damage), "put aside and compiled again, within a request or before it")
    return records


def _load(
    engine: "Engine", tasks: Sequence[str], data: Path | None, longest: int | None, drawn: "Options"
) -> "list[Task]":
    from kvbind.bench.tasks import TaskOptions, load_task

    backbone = engine.backbone
    asked = TaskOptions(
        data=data,
        n=drawn.n,
        seed=drawn.seed,
        window=backbone.window,
        encode=backbone.tokens,
        decode=backbone.tokenizer.decode,
    )
    loaded = [load_task(spelling, asked) for spelling in tasks]
    return [replace(task, max_tokens=longest or task.max_tokens) for task in loaded]


@bench.command("report", short_help="Make tables and figures of runs.")
@click.argument("runs", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Folder of the report.  [default: the first DIR]"
)
@options.debug
def report(runs: tuple[Path, ...], out: Path | None) -> None:
    """Make report.md, report.csv and report.html of the runs in DIR...

    Runs of one model under the same conditions, over different tasks, are reported together, others side by side.
    Every mean and difference has its 95 % bootstrap interval, and a difference that may be noise is marked. The HTML
    page has the figures; it takes matplotlib: pip install 'kvbind[bench]'.

    \b
    kvbind bench report runs/text runs/pages --out report
    """
    from kvbind.bench.report import write_report

    for path in write_report(runs, out or runs[0]):
        click.echo(f"wrote {path}")


@bench.command("export", short_help="Write a task's examples as data for training.")
@click.argument("task", metavar="TASK")
@click.option("--out", required=True, metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="JSONL.")
@click.option("--n", type=click.IntRange(1), metavar="N", help="Examples.  [default: all]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which examples.")
@data_folder
@options.model_options
@options.debug
def export(task: str, out: Path, n: int | None, seed: int, data: Path | None, device: str, **given: Any) -> None:
    """Write the examples of a TASK as `kvbind train` and `kvbind diagnose` read them.

    Train on other examples than those you measure with: another split, or another file of the data.

    \b
    kvbind bench export biographies:notes=5,split=train --model M --n 1024 --out notes.jsonl
    kvbind train writer --model M --data notes.jsonl --out my-writer
    """
    from kvbind.bank import Bank
    from kvbind.bench.export import lines
    from kvbind.bench.run import Options
    from kvbind.cli.settings import load_engine, resolve
    from kvbind.files import write_file

    settings = resolve({}, methods=[], **given)
    engine = load_engine(Bank.memory(), settings, device)
    (loaded,) = _load(engine, [task], data, None, Options(("full",), n, seed))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, [(line + "\n").encode() for line in lines(loaded)])
    click.echo(f"wrote {count(len(loaded.examples), 'example')} to {out}")


@bench.command("tasks", short_help="List the tasks.")
@options.debug
def tasks() -> None:
    """List the tasks, as `kvbind bench run --tasks` takes them."""
    from kvbind.bench.tasks import task_names

    table = plain_table()
    table.add_column("task", no_wrap=True)
    table.add_column("what it asks")
    for name, line in task_names().items():
        table.add_row(name, line)
    console().print(table)
