"""What the commands print: to whom, how wide, and in which units."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from kvbind.bench.run import Progress as RunProgress

INTERRUPTED = 130  # the exit code that shells give to a process ended by Ctrl-C
# Where nobody watches, lines need not fit a window: document ids should stay whole.
PIPED_WIDTH = 120
CHARACTERS_SHOWN = 20
DOCUMENTS_WARNED = 20
SPEED_PERIOD = 3600  # seconds: an example may take longer than rich's own 30


def console(*, err: bool = False) -> Console:
    """A console for tables (stdout) or progress (stderr); it takes text literally."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(stderr=err, width=width, markup=False, emoji=False, highlight=False)


def plain_table(*columns: str, right: Sequence[str] = (), header: bool = True) -> "Table":
    """A table without lines: `columns` to the left, then `right` ones, such as numbers, to the right."""
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, show_header=header, header_style="bold", padding=(0, 2, 0, 0))
    for name in right:
        table.add_column(name, justify="right")
    return table


def progress_display() -> "Progress":
    """Progress on stderr, and nothing at all where that is not a terminal; tasks have a text field `counts`."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = console(err=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(20))
    counts = TextColumn("{task.fields[counts]}", markup=False)
    return Progress(*columns, counts, TimeElapsedColumn(), console=shown, transient=True, disable=not shown.is_terminal)


@contextmanager
def run_display() -> "Iterator[Callable[[RunProgress], None]]":
    """What shows a benchmark's progress on stderr, if that is a terminal; an interruption says how far it came."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    shown = console(err=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(20), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("to go"))
    hidden = not shown.is_terminal
    bar = Progress(*columns, *times, console=shown, transient=True, disable=hidden, speed_estimate_period=SPEED_PERIOD)
    last: list[RunProgress] = []

    def tell(progress: "RunProgress") -> None:
        last[:] = [progress]
        if not bar.tasks:  # what was recorded before says nothing of the speed
            bar.add_task("", total=progress.total, completed=progress.done)
        asked = f"{progress.task} {progress.example}"
        bar.update(bar.tasks[0].id, completed=progress.done, total=progress.total, description=asked)

    try:
        with bar:
            yield tell
    except KeyboardInterrupt:
        if not last:
            raise
        done = f"{last[0].done:,} of {count(last[0].total, 'example')}"
        click.echo(f"interrupted: {done} recorded; run the same command again to go on", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


def fail(line: str) -> None:
    """Say on stderr why the command ends here."""
    click.echo(f"error: {_one(line)}", err=True)


def warn(line: str) -> None:
    """Say on stderr what should be known, and go on."""
    click.echo(f"warning: {_one(line)}", err=True)


def note(line: str) -> None:
    """Say on stderr what is worth knowing."""
    click.echo(_one(line), err=True)


def warn_missing(missing: Mapping[str, str]) -> None:
    """Warn of the characters that a font lacks, by document."""
    for document, characters in list(missing.items())[:DOCUMENTS_WARNED]:
        shown = characters[:CHARACTERS_SHOWN] + ("…" if len(characters) > CHARACTERS_SHOWN else "")
        warn(f"{document}: the font lacks {count(len(characters), 'character')} ({shown}), drawn as boxes: give --font")
    if len(missing) > DOCUMENTS_WARNED:
        warn(f"the font also lacks characters of {count(len(missing) - DOCUMENTS_WARNED, 'further document')}")


def warn_replaced(documents: Sequence[str]) -> None:
    """Warn of documents whose text took the place of another: under one name there may be two files."""
    for document in documents[:DOCUMENTS_WARNED]:
        warn(f"{document}: this text replaced another one of that id, whose passages are gone")
    if len(documents) > DOCUMENTS_WARNED:
        warn(f"so did the texts of {count(len(documents) - DOCUMENTS_WARNED, 'further document')}")


def warn_damage(damage: list[str], outcome: str) -> None:
    """Warn of damaged records, and say what was done about them."""
    for line in damage:
        warn(f"{line}: {outcome}")


def count(number: int, noun: str) -> str:
    """`1 document`, `1,200 documents`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """`0.4 ms`, `120 ms`, `4.1 s`, `2 min 5 s`."""
    if seconds < 1:
        return f"{seconds * 1000:.{1 if seconds < 0.01 else 0}f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def _one(line: str) -> str:
    return line.replace("\r", " ").replace("\n", " ")
