"""`kvbind bank`: what a bank holds, and whether it is whole."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvbind.cli import options
from kvbind.cli.terminal import console, count, plain_table

if TYPE_CHECKING:
    from kvbind.bank import Bank


@click.group(short_help="List, check and remove what a bank holds.")
def bank() -> None:
    """List, check and remove what a bank holds. No model is loaded."""


def _open(folder: Path) -> "Bank":
    from kvbind.bank import Bank

    return Bank.open(folder, hot_bytes=0, create=False)


@bank.command("ls", short_help="List the documents.")
@options.bank_folder
@options.as_json
@options.debug
def ls(bank: Path, as_json: bool) -> None:
    """List the documents with their version, and the number and size of their passages.

    \b
    kvbind bank ls --bank my-bank
    """
    from rich.filesize import decimal

    with _open(bank) as opened:
        documents = opened.documents()
    if as_json:
        click.echo(json.dumps([asdict(info) for info in documents], ensure_ascii=False, indent=2))
        return
    table = plain_table("document", right=("version", "characters", "passages", "tokens", "size"))
    for info in documents:
        numbers = (info.version, info.characters, info.passages, info.rows)
        table.add_row(info.id, *(f"{number:,}" for number in numbers), decimal(info.bytes))
    console().print(table if documents else "the bank holds no documents")


@bank.command("stats", short_help="Count what the bank holds.")
@options.bank_folder
@options.as_json
@options.debug
def stats(bank: Path, as_json: bool) -> None:
    """Count documents, passages and bytes, and show the settings that `kvbind ask` uses.

    \b
    kvbind bank stats --bank my-bank
    """
    from rich.filesize import decimal

    with _open(bank) as opened:
        found = opened.stats()
        settings = opened.get_setting("defaults", {})
        models = [entry.get("source", "?") for entry in opened.models().values()]
    numbers = {
        "documents": found.documents,
        "passages": found.passages,
        "tokens": found.rows,
        "bytes": found.bytes,
        "quarantined": found.quarantined,
        "orphans": found.orphans,
    }
    if as_json:
        click.echo(json.dumps({**numbers, "models": models, "settings": settings}, ensure_ascii=False, indent=2))
        return
    table = plain_table(header=False)
    for name, number in numbers.items():
        size = f" ({decimal(number)})" if name == "bytes" else ""
        table.add_row(name, f"{number:,}{size}")
    table.add_row("compiled for", "\n".join(models) or "no model yet")
    for name in ("model", "method", "embedder", "dtype"):
        table.add_row(f"ask: {name}", str(settings.get(name, "not set")))
    console().print(table)


@bank.command("verify", short_help="Read every record and check it.")
@options.bank_folder
@options.debug
@click.pass_context
def verify(ctx: click.Context, bank: Path) -> None:
    """Read every record and compare its checksums; one line for each fault, and exit code 1 if there is any.

    A damaged record is put aside: it is never served, and compiled again when it is needed.

    \b
    kvbind bank verify --bank my-bank
    """
    from rich.progress import Progress

    shown = console(err=True)
    with _open(bank) as opened:
        with Progress(console=shown, transient=True, disable=not shown.is_terminal) as progress:
            task = progress.add_task("verifying", total=None)
            faults = opened.verify(lambda done, total: progress.update(task, completed=done, total=total))
        passages = opened.stats().passages
    for fault in faults:
        click.echo(fault)
    click.echo(f"{count(passages, 'passage')}, {count(len(faults), 'fault')}")
    ctx.exit(1 if faults else 0)


@bank.command("rm", short_help="Remove documents.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@options.bank_folder
@click.option("--all", "everything", is_flag=True, help="Remove every document.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options.debug
def rm(ids: tuple[str, ...], bank: Path, everything: bool, yes: bool) -> None:
    """Remove documents by ID with their texts and passages; patterns such as 'news/*' name several.

    \b
    kvbind bank rm old.txt 'drafts/*' --bank my-bank
    """
    from rich.filesize import decimal

    from kvbind.cli.select import select

    if bool(ids) == everything:
        raise click.UsageError("give either document ids or --all")
    with _open(bank) as opened:
        chosen = [info.id for info in opened.documents()] if everything else select(opened, ids)
        _confirm(chosen, yes)
        freed = sum(opened.remove(identifier) for identifier in chosen)
    click.echo(f"{count(len(chosen), 'document')} removed, {decimal(freed)} freed")


def _confirm(chosen: list[str], yes: bool) -> None:
    names = ", ".join(chosen[:3]) + (", …" if len(chosen) > 3 else "")
    if chosen and not yes:
        click.confirm(f"Remove {count(len(chosen), 'document')} ({names})?", abort=True, err=True)


@bank.command("prune", short_help="Delete records that no document has.")
@options.bank_folder
@options.debug
def prune(bank: Path) -> None:
    """Delete records that no document has, and damaged ones that were put aside.

    \b
    kvbind bank prune --bank my-bank
    """
    from rich.filesize import decimal

    with _open(bank) as opened:
        freed = opened.prune()
    click.echo(f"{decimal(freed)} freed")
