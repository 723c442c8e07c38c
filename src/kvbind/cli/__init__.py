"""The command line: `kvbind compile`, `ask`, `bank`, `methods`, `render`, `bench`, `train` and the rest."""

from kvbind.cli.root import main

__all__ = ["main"]
