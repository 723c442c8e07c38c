"""The `kvbind` command: its groups, and what becomes of errors."""

from typing import Any

import click

from kvbind.cli.ask import ask
from kvbind.cli.bank import bank
from kvbind.cli.bench import bench
from kvbind.cli.compile import compile_
from kvbind.cli.demo import demo
from kvbind.cli.diagnose import diagnose
from kvbind.cli.methods import methods
from kvbind.cli.options import DEBUG, debug
from kvbind.cli.profile import profile_layers
from kvbind.cli.render import render
from kvbind.cli.terminal import INTERRUPTED, fail
from kvbind.cli.train import train
from kvbind.cli.tune import tune
from kvbind.errors import KvbindError


class Root(click.Group):
    """A group that turns every expected error into one line on stderr."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; `--debug` lets tracebacks through."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:  # click ends quietly when nobody reads the output any more
            raise
        except Exception as error:
            line = _line(error)
            if line is None or ctx.meta.get(DEBUG):
                raise
            fail(line)
            ctx.exit(1)


def _line(error: Exception) -> str | None:
    """The line that says what went wrong; None for what nobody foresaw, which keeps its traceback."""
    if isinstance(error, KvbindError):
        return str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out of memory: use fewer or shorter documents, a smaller model, or another --device"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"{place}{error.strerror or error}: check the path, its permissions and the free space"
    return None


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@debug
@click.version_option(package_name="kvbind", message="kvbind %(version)s")
def main() -> None:
    """Compile documents once into keys and values; ask over any selection of them, in any order.

    \b
    kvbind compile docs/ --bank my-bank --model Qwen/Qwen2.5-0.5B-Instruct
    kvbind ask "Who built the lighthouse?" --bank my-bank

    A bank is a folder. It holds the documents, what was compiled of them, and the settings of the last compile, which
    `kvbind ask` uses unless told otherwise. Errors are one line on stderr; the exit code is then 1, and 2 where the
    command itself was wrong.
    """


for command in (demo, compile_, ask, bank, methods, render, bench, tune, profile_layers, train, diagnose):
    main.add_command(command)
