"""`kvbind ask`."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvbind.cli import options
from kvbind.cli.terminal import console, warn_damage, warn_missing

if TYPE_CHECKING:
    from kvbind.answer import Answer
    from kvbind.bank import Bank
    from kvbind.cli.settings import Settings


F = TypeVar("F", bound=Callable[..., Any])


def _not_empty(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    if "" in value:
        raise click.BadParameter("a stop string cannot be empty")
    return value


def _question(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape").strip() if value == "-" else value
    if not text.strip():
        raise click.BadParameter("it is empty")
    return str(_utf8(ctx, parameter, text))


def _utf8(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    try:
        (value or "").encode()
    except UnicodeEncodeError as error:
        raise click.BadParameter("it is not UTF-8 text") from error
    return value


def sampling_options(function: F) -> F:
    """How the answer is generated."""
    return options.together(
        function,
        click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="Longest answer."),
        click.option(
            "--temperature",
            type=click.FloatRange(0),
            default=0.0,
            show_default=True,
            help="0: the likeliest token.",
        ),
        click.option(
            "--top-p",
            type=click.FloatRange(0, 1, min_open=True),
            default=1.0,
            show_default=True,
            help="Sample from the likeliest tokens that hold this share.",
        ),
        click.option(
            "--stop",
            metavar="S",
            multiple=True,
            callback=_not_empty,
            help="End the answer before this text. Repeatable.",
        ),
        click.option("--seed", type=click.IntRange(0, 2**31 - 1), metavar="N", help="Make sampling repeatable."),
    )


@click.command(short_help="Ask a question over documents of a bank.")
@click.argument("question", callback=_question)
@options.bank_folder
@click.option(
    "--docs",
    metavar="ID",
    multiple=True,
    help="Documents to ask over, in this order: an id, a list with commas, or a pattern such as 'Warsaw/*'; may be "
    "repeated.  [default: the most relevant ones]",
)
@click.option(
    "--top-k",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Without --docs: how many of the most relevant documents.",
)
@click.option("--method", metavar="METHOD", help="As in `kvbind methods`.  [default: the bank's, else template]")
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Method and page spec from a file that `kvbind tune` wrote, in place of the bank's.",
)
@click.option("--system", metavar="TEXT", callback=_utf8, help="System prompt.")
@sampling_options
@click.option("--explain", is_flag=True, help="Print where the answer came from, and where the time went.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text as it comes.")
@click.option(
    "--weigh/--no-weigh",
    default=True,
    show_default=True,
    help="Let a repairing method compute everything where that is expected to be faster.",
)
@options.model_options
@options.debug
def ask(
    question: str,
    bank: Path,
    docs: tuple[str, ...],
    top_k: int,
    system: str | None,
    explain: bool,
    as_json: bool,
    device: str,
    weigh: bool,
    **given: Any,
) -> None:
    """Ask a QUESTION ("-" reads it from standard input) over documents of a bank; the answer goes to stdout.

    Documents may be asked over in any order and selection: what was compiled is reused, and what is missing is
    compiled now and kept. The method "full" reuses nothing, for comparison.

    \b
    kvbind ask "Who built the lighthouse?" --bank my-bank
    kvbind ask "What changed?" --bank my-bank --docs 2024.txt,2023.txt --explain
    kvbind ask - --bank my-bank --docs 'Warsaw/*' --json < question.txt
    """
    from kvbind.bank import Bank

    with Bank.open(bank, hot_bytes=0, create=False) as opened:
        request = {"top_k": top_k, "system": system, "explain": explain}
        answer = _answer(opened, question, docs, device, request, given, weigh=weigh, stream=not as_json)
        damage = list(opened.damage)
    if as_json:
        click.echo(json.dumps({**asdict(answer), "damage": damage}, ensure_ascii=False))
    warn_damage(damage, "put aside and recompiled")
    warn_missing(answer.missing_characters)
    if explain and not as_json:
        _explain(answer)


def _answer(
    bank: "Bank",
    question: str,
    docs: tuple[str, ...],
    device: str,
    request: dict[str, Any],
    given: dict[str, Any],
    *,
    weigh: bool,
    stream: bool,
) -> "Answer":
    """Everything that can be wrong with a request is checked before the model is loaded."""
    from kvbind.cli.select import select
    from kvbind.cli.settings import load_engine, ready_method
    from kvbind.errors import DocumentError
    from kvbind.steps.decode import Sampling

    names = ("max_tokens", "temperature", "top_p", "stop", "seed")
    sampling = Sampling(**{name: given.pop(name) for name in names})
    settings = _settings(bank, **given)
    chosen = ready_method(settings.methods[0], settings.page)
    ids = select(bank, docs) if docs else None
    if not bank.documents():
        raise DocumentError("the bank holds no documents: compile some first")
    with console(err=True).status(f"loading {settings.model}") as status:
        engine = load_engine(bank, settings, device)
        engine.weigh = weigh
        status.update("reading")

        def write(text: str) -> None:
            status.stop()
            click.echo(text, nl=False)

        answer = engine.ask(
            question, ids, method=chosen, sampling=sampling, on_text=write if stream else None, **request
        )
    if stream:
        click.echo()
    return answer


def _settings(bank: "Bank", method: str | None, config: Path | None, **given: Any) -> "Settings":
    from kvbind.cli.config import read_config
    from kvbind.cli.settings import DEFAULTS, resolve

    known = {**bank.get_setting(DEFAULTS, {}), **(read_config(config) if config else {})}
    return resolve(known, methods=[method] if method else [], **given)


def _explain(answer: "Answer") -> None:
    from kvbind.cli.explain import costs_table, sources_table

    shown = console()
    shown.print()
    if answer.sources:
        shown.print(sources_table(answer.sources))
        shown.print("attention: the last question token's, at the middle layer; the rest is on the prompt's other text")
        shown.print()
    shown.print(costs_table(answer))
    if answer.decision:
        shown.print(answer.decision)
