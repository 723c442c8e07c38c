"""`kvbind demo`: what reuse is, in the first minute."""

import os
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

import click

from kvbind.cli import options
from kvbind.cli.terminal import console, count, note, plain_table

if TYPE_CHECKING:
    from kvbind.demo import Round
    from kvbind.engine import Engine


@click.command()
@click.argument("question", required=False)
@click.option("--open", "show", is_flag=True, help="Write an HTML page that shows the pages as the model saw them.")
@click.option("--bank", type=click.Path(path_type=Path), help="Where to keep the bank (default: a cache folder).")
@options.debug
def demo(question: str | None, show: bool, bank: Path | None) -> None:
    """Ask the built-in reader about a dozen example notes: full prefill, reused text, reused pages.

    The reader is small, and trained on notes of this kind alone: a laboratory animal. With a QUESTION, that one is
    asked over the most relevant notes. The bank stays in a cache folder: the second run compiles nothing.

    \b
    kvbind demo
    kvbind demo "By whom is the Gribais lamp manufactured?"
    kvbind demo --open
    """
    from kvbind.demo import Task, read_notes, read_tasks, run_round
    from kvbind.engine import Engine

    folder = bank or _cache() / "demo-bank"
    engine = Engine.from_pretrained("pocket", bank=folder, dtype="float32")
    notes = read_notes()
    for method in ("template", "qv-pic"):
        report = engine.compile(notes, method)
        click.echo(
            f"{method}: {count(report.documents, 'note')}, {report.compiled} passages compiled, "
            f"{report.skipped} in the bank already, {report.seconds:.1f} s"
        )
    rounds = []
    for task in [Task(question)] if question else read_tasks():
        rounds.append(run_round(engine, task))
        if rounds[-1].off_topic:
            note(f"no note is about {task.question!r}: the answers are guesses")
        _print(rounds[-1])
    if not question:
        _print_sums(rounds)
    click.echo(f"\nthe bank: {folder}")
    if show:
        _show(engine, rounds, folder.with_name("demo.html"))


def _print(each: "Round") -> None:
    from kvbind.demo import METHODS

    click.echo(f"\n{each.task.question}" + (f"  [{each.task.answer}]" if each.task.answer else ""))
    table = plain_table("method", "answer", right=("reused", "computed", "first token", "than full"))
    table.add_column("at 120 DPI")
    for method in METHODS:
        answer = each.answers[method]
        promoted = ", ".join(source.document.partition("/")[2] for source in answer.sources if source.promoted)
        speed = "" if method == "full" else f"{each.speedup(method):.1f}× sooner"
        table.add_row(
            method,
            answer.text.strip(),
            str(answer.tokens["reused"]),
            str(answer.tokens["fresh"]),
            f"{answer.ttft * 1e3:.0f} ms",
            speed,
            promoted,
        )
    console().print(table)


def _print_sums(rounds: "list[Round]") -> None:
    from kvbind.demo import METHODS

    table = plain_table("method", right=("right", "tokens", "first token", "than full"))
    for method in METHODS:
        answers = [each.answers[method] for each in rounds]
        table.add_row(
            method,
            f"{sum(each.right(method) for each in rounds)} of {len(rounds)}",
            f"{mean(answer.tokens['reused'] + answer.tokens['fresh'] for answer in answers):.0f}",
            f"{median(answer.ttft for answer in answers) * 1e3:.0f} ms",
            "" if method == "full" else f"{median(each.speedup(method) for each in rounds):.1f}× sooner",
        )
    click.echo(f"\nAll {len(rounds)}")
    console().print(table)


def _show(engine: "Engine", rounds: "list[Round]", path: Path) -> None:
    from kvbind.demo import write_page

    write_page(engine, rounds, path)
    click.echo(f"the pages: {path}")
    click.launch(str(path))


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvbind"
