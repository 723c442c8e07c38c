"""Short factual notes with questions, made from a seed: biographies, product sheets and incident reports.

Names and values are built from syllables and digits, so that answers must be read, not remembered, and those of the
"eval" split never occur in the "train" split.
"""

from kvbind.notes.sample import (
    KINDS,
    LONGEST,
    Context,
    Note,
    Question,
    Sample,
    ask,
    make_context,
    make_note,
    make_sample,
)
from kvbind.notes.words import Split, Words

__all__ = [
    "KINDS",
    "LONGEST",
    "Context",
    "Note",
    "Question",
    "Sample",
    "Split",
    "Words",
    "ask",
    "make_context",
    "make_note",
    "make_sample",
]
