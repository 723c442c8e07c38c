"""The demonstration: a dozen notes, some questions, and three ways to answer them."""

from kvbind.demo.page import write_page
from kvbind.demo.rounds import METHODS, Round, Task, read_notes, read_tasks, run_round

__all__ = ["METHODS", "Round", "Task", "read_notes", "read_tasks", "run_round", "write_page"]
