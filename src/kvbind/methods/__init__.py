"""Published methods, as data."""

from kvbind.methods.allocate import cumulative
from kvbind.methods.method import Method, Write
from kvbind.methods.selectors import Selector
from kvbind.methods.table import factories, given, parameters, parse_method

__all__ = ["Method", "Selector", "Write", "cumulative", "factories", "given", "parameters", "parse_method"]
