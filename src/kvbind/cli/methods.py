"""`kvbind methods`."""

import inspect
import re
from typing import Any

import click

from kvbind.cli import options
from kvbind.cli.terminal import console, plain_table


@click.command(short_help="List the methods and their parameters.")
@options.debug
def methods() -> None:
    """List the methods, their parameters and the defaults.

    A method is spelled name, name:value (its first parameter) or name:key=value,key=value.

    \b
    kvbind compile docs/ --bank my-bank --model M --method dummy:8
    kvbind ask "Why?" --bank my-bank --method qv-pic:alpha=0.5,budget=2
    """
    from kvbind.methods import factories, parameters

    table = plain_table()
    table.add_column("method", no_wrap=True)
    table.add_column("parameters", no_wrap=True)
    table.add_column("what it does")
    for name, factory in factories().items():
        taken = [f"{key}={_spelled(parameter.default)}" for key, parameter in parameters(factory).items()]
        table.add_row(name, ",".join(taken) or "none", _first_sentence(factory))
    console().print(table)


def _spelled(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _first_sentence(factory: Any) -> str:
    paragraph = " ".join((inspect.getdoc(factory) or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z])", paragraph)[0]  # "eq. 6" goes on
