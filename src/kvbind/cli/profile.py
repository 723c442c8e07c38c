"""`kvbind profile-layers`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbind.cli import options
from kvbind.cli.terminal import console, count, plain_table

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

    from kvbind.steps.profile import LayerProfile

BAR = 40


@click.command("profile-layers", short_help="Find the layers that tell what matters.")
@click.argument("questions", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@options.bank_folder
@click.option("--method", default="qcfuse", show_default=True, metavar="METHOD", help="qcfuse or qcfuse-view.")
@click.option(
    "--ratio",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.3,
    show_default=True,
    help="Share that matters.",
)
@click.option("--top-k", type=click.IntRange(1), default=5, show_default=True, help="Documents for each question.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the ranking as this SVG.")
@options.model_options
@options.debug
def profile_layers(
    questions: Path, bank: Path, method: str, ratio: float, top_k: int, plot: Path | None, device: str, **given: Any
) -> None:
    """Find the critical layers of a model on your own documents and questions, for qcfuse to use.

    QUESTIONS is a file with one question per line ("-": standard input). Each is read over the most relevant documents
    of the bank, once whole and once by the method's probe; a layer is as good as the probe's choice of tokens there
    agrees with what the question looks at under full prefill. The ranking is kept in the bank.

    \b
    kvbind profile-layers questions.txt --bank my-bank --plot layers.svg
    """
    from kvbind.bank import Bank
    from kvbind.cli.settings import DEFAULTS, load_engine, ready_method, resolve

    if plot is not None and not plot.parent.is_dir():
        raise click.BadParameter(f"there is no folder {plot.parent}: make it first", param_hint="--plot")
    asked = _read(questions)
    with Bank.open(bank, create=False) as opened:
        settings = resolve(opened.get_setting(DEFAULTS, {}), methods=[method], **given)
        chosen = ready_method(settings.methods[0], settings.page)
        engine = load_engine(opened, settings, device)
        with _display() as progress:
            task = progress.add_task("questions", total=len(asked))
            found = engine.profile_layers(
                asked,
                method=chosen,
                ratio=ratio,
                top_k=top_k,
                progress=lambda done: progress.update(task, completed=done),
            )
    table = _table(found)
    console().print(table)
    if plot is not None:
        _draw(table, plot)


def _read(path: Path) -> list[str]:
    from kvbind.errors import DocumentError

    with click.open_file(str(path), "rb") as file:
        content = file.read()
    try:
        lines = content.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise DocumentError(f"{path}: not UTF-8 text (from byte {error.start}): save it as UTF-8") from error
    return [line.strip() for line in lines if line.strip()]


def _display() -> "Progress":
    """Progress on stderr, with the time that is left, and nothing at all where that is not a terminal."""
    from rich.progress import Progress

    shown = console(err=True)
    return Progress(*Progress.get_default_columns(), console=shown, transient=True, disable=not shown.is_terminal)


def _table(found: "LayerProfile") -> "Table":
    table = plain_table("layer", right=("agreement",))
    table.add_column(f"found of the {found.ratio:.0%} of tokens that matter ({count(found.questions, 'question')})")
    for layer in found.ranking:
        share = found.agreement[layer]
        table.add_row(str(layer), f"{share:.1%}", "█" * round(BAR * share))
    table.add_row("chance", f"{found.ratio:.1%}", "░" * round(BAR * found.ratio), style="dim")
    return table


def _draw(table: "Table", path: Path) -> None:
    import io

    from rich.console import Console

    from kvbind.files import write_file

    drawing = Console(record=True, width=80, file=io.StringIO())
    drawing.print(table)
    write_file(path, [drawing.export_svg(title="kvbind profile-layers").encode()])
