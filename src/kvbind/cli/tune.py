"""`kvbind tune`: the fastest method that is as good as full prefill, on a user's own questions."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbind.cli import options
from kvbind.cli.spellings import split_spellings
from kvbind.cli.terminal import console, count, plain_table, run_display, warn, warn_damage

if TYPE_CHECKING:
    from rich.table import Table

    from kvbind.bank import Bank
    from kvbind.bench.questions import Question
    from kvbind.bench.verdicts import Findings, Judged
    from kvbind.cli.settings import Settings

CONFIG = "config.json"


@click.command(short_help="Find the fastest method that is good enough for you.")
@click.argument("questions", type=click.Path(path_type=Path))
@options.bank_folder
@click.option("--out", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of what is found.")
@click.option(
    "--margin",
    type=click.FloatRange(0, 100, min_open=True),
    default=2.0,
    show_default=True,
    help="Points of F1 (0 to 100) that quality may be behind full prefill's.",
)
@click.option("--n", type=click.IntRange(1), metavar="N", help="Questions, drawn by the seed.  [default: all]")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which questions, and their order.")
@click.option(
    "--methods", metavar="M", multiple=True, help="Methods, as in `kvbind bench run`.  [default: a table of them]"
)
@click.option(
    "--repeats", type=click.IntRange(1), default=1, show_default=True, help="Warm requests timed for each question."
)
@click.option(
    "--top-k", type=click.IntRange(1), default=5, show_default=True, help="Documents of a question that names none."
)
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="Longest answer.")
@click.option("--apply", "applied", is_flag=True, help="Have `kvbind ask` use what was found, if it is proven.")
@options.model_options
@options.debug
def tune(questions: Path, bank: Path, out: Path, applied: bool, device: str, **given: Any) -> None:
    """Find the fastest method whose answers to your QUESTIONS are within a margin of full prefill's.

    QUESTIONS has one question a line: as text, or in a .jsonl file as {"question": …} with perhaps "answer" or
    "answers", and "documents", a list of ids. Quality is LongBench's F1 to the answers or, without any, to what full
    prefill says. What is clearly worse is dropped early. Interrupt it at any time: the same command goes on with it.

    \b
    kvbind tune questions.jsonl --bank my-bank --out tuned
    kvbind ask "Who built the lighthouse?" --bank my-bank --config tuned/config.json

    The bank is only read: what the search compiles lies beside what it finds, and may be deleted with that.
    """
    from kvbind.bank import Bank
    from kvbind.bench.questions import draw, read_questions
    from kvbind.cli.config import write_config
    from kvbind.cli.settings import DEFAULTS, ready_method, resolve
    from kvbind.methods import factories

    asked = draw(read_questions(questions), given.pop("n"), given["seed"])
    search = {name: given.pop(name) for name in ("margin", "seed", "repeats", "top_k", "max_tokens")}
    spelled = split_spellings(given.pop("methods"), factories())
    with Bank.open(bank, hot_bytes=0, create=False) as opened:
        settings = resolve(opened.get_setting(DEFAULTS, {}), methods=spelled, **given)
        _check(opened, questions, asked)
        for spelling in spelled:
            ready_method(spelling, settings.page)
        found = _search(opened, settings, device, asked, tuple(spelled), out, str(questions), search)
        chosen = replace(settings, methods=(found.method,))
        write_config(out / CONFIG, found.method, settings.page, _evidence(found, settings, str(questions)))
        if applied and found.proven:
            opened.set_setting(DEFAULTS, chosen.kept())
    _show(found, out / CONFIG)
    if applied and not found.proven:
        warn("not applied, since it is not proven: `kvbind ask --config` takes it all the same")


def _check(bank: "Bank", file: Path, asked: "list[Question]") -> None:
    """Find what is wrong with documents before the model is loaded."""
    from kvbind.errors import DocumentError

    known = {info.id for info in bank.documents()}
    if not known:
        raise DocumentError("the bank holds no documents: compile some first")
    for question in asked:
        for name in question.documents or ():
            if name not in known:
                line = f"{file}:{question.line}: the bank has no document {name!r}"
                raise DocumentError(f"{line}: `kvbind bank ls` lists them")


def _search(
    bank: "Bank",
    settings: "Settings",
    device: str,
    asked: "list[Question]",
    methods: tuple[str, ...],
    out: Path,
    source: str,
    search: dict[str, Any],
) -> "Findings":
    from kvbind.bank import Bank
    from kvbind.bench.candidates import candidates
    from kvbind.bench.questions import own_task
    from kvbind.bench.tune import Search, beside, tune
    from kvbind.cli.settings import load_engine, ready_method

    with console(err=True).status(f"loading {settings.model}"):
        engine = load_engine(bank, settings, device)
    tried = candidates(engine.backbone.reads_pages, methods)
    for spelling in tried:
        engine.method(ready_method(spelling, settings.page))
    shown = {name: search.pop(name) for name in ("top_k", "max_tokens")}
    task = own_task(engine, asked, source=source, **shown)
    wanted = Search(tried, **search)
    with Bank.open(out / "bank") as work, run_display() as tell:
        found = tune(beside(engine, work), task, wanted, out, tell)
        warn_damage(list(work.damage), "put aside and compiled again, within a request or before it")
    return found


def _show(found: "Findings", config: Path) -> None:
    shown = console()
    quality = "agreement with full prefill over text" if found.agreement else "F1 to the answers"
    less = f" ({found.left_out:,} left out, to which that says nothing)" if found.left_out else ""
    line = f"{count(found.questions, 'question')}; quality: {quality}{less}; margin: {found.margin:g} points"
    shown.print(line, soft_wrap=True)
    shown.print(_table(found))
    shown.print(f"{'recommended' if found.proven else 'not proven'}: {found.method} ({found.reason})", soft_wrap=True)
    shown.print(f"wrote {config}", soft_wrap=True)


def _table(found: "Findings") -> "Table":
    table = plain_table()
    table.add_column("method", no_wrap=True)
    for name in ("asked", "quality", f"to {found.against}", "TTFT ratio", "bytes", "pays after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    for one in found.judged:
        table.add_row(one.row.method, *_numbers(one), one.verdict)
    return table


def _numbers(one: "Judged") -> list[str]:
    """Questions, quality, its difference to full prefill, ratio of TTFT, bytes per document, break-even."""
    from kvbind.bench.cells import COLUMNS, NOT_MEASURED

    row = one.row
    difference = row.full.interval if row.full else None
    return [
        COLUMNS["examples"](row),
        f"{row.f1.value:.1f}" if row.f1 else NOT_MEASURED,
        f"{difference.value:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]" if difference else NOT_MEASURED,
        f"{row.ratio.interval.value:.2f}" if row.ratio else NOT_MEASURED,
        COLUMNS["bytes per document"](row),
        COLUMNS["break-even, reuses"](row),
    ]


def _evidence(found: "Findings", settings: "Settings", source: str) -> dict[str, Any]:
    """What the recommendation rests on, as JSON takes it."""
    from kvbind.bench.cells import values

    rows = [{**values(one.row), "verdict": one.verdict} for one in found.judged]
    for row in rows:
        if row["break_even"] == math.inf:  # which JSON does not know
            row["break_even"] = "never"
    return {
        "proven": found.proven,
        "reason": found.reason,
        "quality": "agreement" if found.agreement else "f1",
        "margin": found.margin,
        "questions": found.questions,
        "left_out": found.left_out,
        "source": source,
        "model": settings.model,
        "against": found.against,
        "methods": rows,
    }
