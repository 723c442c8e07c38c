"""Options of `kvbind train`, in groups."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from kvbind.cli import options

F = TypeVar("F", bound=Callable[..., Any])
POSITIVE = click.IntRange(1)


def size_options(function: F) -> F:
    """What the writer is."""
    return options.together(
        function,
        click.option("--rank", type=POSITIVE, default=8, show_default=True, help="Rank of the LoRA."),
        click.option(
            "--alpha", type=click.FloatRange(0, min_open=True), default=16.0, show_default=True, help="Its scale."
        ),
        click.option(
            "--soft", type=POSITIVE, default=8, show_default=True, help="Soft rows before each document, and after it."
        ),
        click.option(
            "--frame",
            type=click.Choice(["bare", "template"]),
            default="bare",
            show_default=True,
            help="Compile each document after nothing, or after the chat template's head.",
        ),
    )


def data_options(function: F) -> F:
    """What is learned from, and what is held out."""
    return options.together(
        function,
        click.option("--samples", type=POSITIVE, metavar="N", help="Draw N examples of each file.  [default: all]"),
        click.option(
            "--held-out",
            type=click.IntRange(0),
            default=100,
            show_default=True,
            help="Examples of each file to evaluate on, at most a tenth of it.",
        ),
        click.option(
            "--answers",
            type=click.Choice(["teacher", "data"]),
            default="teacher",
            show_default=True,
            help="Match the teacher along its own answers, or along the data's.",
        ),
        click.option("--max-tokens", type=POSITIVE, default=64, show_default=True, help="Longest answer."),
        click.option(
            "--top", type=POSITIVE, default=64, show_default=True, help="Likeliest tokens kept of each distribution."
        ),
        click.option(
            "--lessons",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="Folder of the teacher's answers; several runs may share it.  [default: teacher, in --out]",
        ),
    )


def step_options(function: F) -> F:
    """How it is trained."""
    return options.together(
        function,
        click.option("--epochs", type=POSITIVE, help="Passes over the data.  [default: 5; packet: 30]"),
        click.option(
            "--lr",
            type=click.FloatRange(0, 1, True, True),
            default=5e-4,
            show_default=True,
            help="Learning rate at the start; it falls to 0.",
        ),
        click.option("--batch", type=POSITIVE, help="Examples a step.  [default: 16; packet: 64]"),
        click.option("--group", type=POSITIVE, default=4, show_default=True, help="Examples in memory at a time."),
        click.option(
            "--checkpointing/--no-checkpointing",
            default=None,
            help="Keep only hidden states, keys and values for the backward pass: less memory, more time.  "
            "[default: on, but on a CPU off]",
        ),
        click.option(
            "--evaluations",
            type=click.IntRange(0),
            default=3,
            show_default=True,
            help="Evaluations between the first and the last.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, 2**31 - 1),
            default=0,
            show_default=True,
            metavar="N",
            help="Makes it repeatable.",
        ),
    )
