"""`kvbind compile`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbind.cli import options
from kvbind.cli.terminal import (
    INTERRUPTED,
    count,
    duration,
    progress_display,
    warn_damage,
    warn_missing,
    warn_replaced,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from kvbind.cli.settings import Settings
    from kvbind.steps.compile import CompileReport


@click.command("compile", short_help="Compile documents into a bank.")
@click.argument("docs", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.bank_folder
@click.option(
    "--method",
    "methods",
    metavar="METHOD",
    multiple=True,
    help="What to compile, such as template, dummy:k=8 or qv-pic:budget=2; see `kvbind methods`. May be repeated; "
    "`kvbind ask` then uses the first.  [default: the bank's, else template]",
)
@options.model_options
@options.page_options
@options.debug
def compile_(docs: tuple[Path, ...], bank: Path, device: str, **given: Any) -> None:
    """Compile documents into a bank, which is made if it is not there.

    DOCS are text files, folders (read recursively) and JSON Lines files with a "text" and perhaps an "id" on each
    line. A document's id is its path inside the folder named, or its file name. What the bank has already is
    skipped: interrupt a compile at any time, and run the same command again to go on.

    \b
    kvbind compile docs/ --bank my-bank --model Qwen/Qwen2.5-0.5B-Instruct
    kvbind compile more.jsonl --bank my-bank
    kvbind compile docs/ --bank pages --model Qwen/Qwen2.5-VL-3B-Instruct --method qv-pic

    The bank remembers the model, the first method and all other settings, for later commands.
    """
    from kvbind.cli.settings import ready_method, remembered, resolve
    from kvbind.errors import MethodError

    settings = resolve(remembered(bank), **given)
    for spelling in settings.methods:
        if ready_method(spelling, settings.page).write is None:
            raise MethodError(f"{spelling} reuses nothing, so there is nothing to compile: use it with `kvbind ask`")
    reports: dict[str, CompileReport] = {}
    try:
        damage = _compile(docs, bank, settings, device, reports)
    except KeyboardInterrupt:
        if not reports:
            raise
        kept = sum(report.compiled + report.skipped for report in reports.values())
        verb = "is" if kept == 1 else "are"
        line = f"interrupted: {count(kept, 'passage')} {verb} kept; run the same command again to go on"
        click.echo(line, err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    warn_damage(damage, "put aside and compiled again")
    warn_replaced(next(iter(reports.values())).replaced)
    _summarise(reports)


def _compile(
    docs: tuple[Path, ...], folder: Path, settings: "Settings", device: str, reports: "dict[str, CompileReport]"
) -> list[str]:
    """Fill `reports` by method, and return the damage met; the model is loaded when all documents could be read."""
    from kvbind.bank import Bank
    from kvbind.cli.settings import DEFAULTS, load_engine
    from kvbind.corpus import read_documents

    with progress_display() as progress:
        documents = _count(progress, read_documents(docs))
        with Bank.open(folder, hot_bytes=0) as bank:
            loading = progress.add_task(f"loading {settings.model}", total=None, counts="")
            engine = load_engine(bank, settings, device)
            progress.remove_task(loading)
            for spelling in settings.methods:
                task = progress.add_task(spelling, total=None, counts="")

                def tell(report: "CompileReport", name: str = spelling, task: Any = task) -> None:
                    if not reports:  # by now the model, the method and the pages have proved to go together
                        bank.set_setting(DEFAULTS, settings.kept())
                    reports[name] = report
                    _update(progress, task, report, documents)

                reports[spelling] = engine.compile(read_documents(docs), spelling, progress=tell)
            return list(bank.damage)


def _count(progress: "Progress", documents: Iterable[object]) -> int:
    """Read every document once: what cannot be read is said now, not after hours."""
    task = progress.add_task("checking documents", total=None, counts="")
    number = 0
    for number, _ in enumerate(documents, 1):
        progress.update(task, counts=f"{number:,}")
    progress.remove_task(task)
    return number


def _update(progress: "Progress", task: Any, report: "CompileReport", documents: int) -> None:
    from rich.filesize import decimal

    done = report.compiled + report.skipped
    # How many passages documents still to come will have is not known; those so far are the best guess.
    total = round(report.passages * documents / max(report.documents, 1))
    about = "" if report.documents == documents else "~"
    counts = (
        f"documents {report.documents:,}/{documents:,}, passages {done:,}/{about}{total:,}, "
        f"{report.rows:,} tokens, {decimal(report.bytes)}"
    )
    progress.update(task, completed=done, total=total, counts=counts)


def _summarise(reports: "Mapping[str, CompileReport]") -> None:
    from rich.filesize import decimal

    for spelling, report in reports.items():
        warn_missing(report.missing_characters)
        click.echo(
            f"{spelling}: {count(report.documents, 'document')}, {count(report.passages, 'passage')} "
            f"({report.compiled:,} compiled, {report.skipped:,} skipped), {count(report.rows, 'token')}, "
            f"{decimal(report.bytes)} in {duration(report.seconds)}"
        )
