"""The command line: `kvbind compile`, `ask`, `bank`, `methods`, `render` and `bench`."""

from kvbind.cli.root import main

__all__ = ["main"]
