"""The command line: `kvbind compile`, `ask`, `bank`, `methods` and `render`."""

from kvbind.cli.root import main

__all__ = ["main"]
