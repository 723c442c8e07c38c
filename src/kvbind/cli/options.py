"""Options that several commands share, so that they read the same everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

DEBUG = "kvbind.debug"

F = TypeVar("F", bound=Callable[..., Any])


def _note_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[DEBUG] = True


debug = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    envvar="KVBIND_DEBUG",
    show_envvar=True,
    callback=_note_debug,
    help="Show the traceback of an error.",
)

bank_folder = click.option(
    "--bank", required=True, metavar="DIR", type=click.Path(path_type=Path), help="Folder of the bank."
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def together(function: F, *options: Callable[[Any], Any]) -> F:
    """Add several options to a command, listed in this order by `--help`."""
    decorated: F = function
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def model_options(function: F) -> F:
    """The model, where it runs, and what judges relevance; None where the bank's setting holds."""
    return together(
        function,
        click.option("--model", metavar="M", help="Model folder or hub id.  [default: the bank's]"),
        click.option(
            "--device",
            default="cpu",
            show_default=True,
            metavar="NAME",
            help="Where the model runs, such as cpu or cuda:0.",
        ),
        click.option(
            "--dtype",
            metavar="TYPE",
            help="Number format of the model and its passages: auto (the model's own), float32, bfloat16 or float16.  "
            "[default: the bank's, else auto]",
        ),
        click.option(
            "--embedder",
            metavar="NAME",
            help="What judges relevance: lexical, or a sentence-transformers model's folder or hub id.  "
            "[default: the bank's, else lexical]",
        ),
    )


def page_options(function: F) -> F:
    """How pages are drawn; None where nothing was given."""
    return together(
        function,
        click.option(
            "--font",
            metavar="F",
            help="Font of page images: a TrueType file, or the name of a shipped font.  [default: DejaVuSans]",
        ),
        click.option(
            "--newline",
            type=click.Choice(["plain", "visible"]),
            help="Draw line breaks as they are, or also as a red \\n.  [default: plain]",
        ),
        click.option(
            "--crop-width/--no-crop-width", default=None, help="Cut pages after their widest line.  [default: crop]"
        ),
        click.option(
            "--crop-last-page/--no-crop-last-page",
            default=None,
            help="Cut a document's last page below its last line.  [default: crop]",
        ),
    )
