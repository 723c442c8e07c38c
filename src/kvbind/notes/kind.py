"""What a kind of note is, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from kvbind.notes.words import Words


@dataclass(frozen=True)
class Attribute:
    """One thing that a note can state: how its value is made, stated and asked for.

    In `sentences`, {v} is the value; {S} (at the start) and {s} the subject as a nominative, which may become a
    pronoun, and {N} the subject always by name. In `questions`, {N} is the full name.
    """

    make: Callable[[Random], str]
    sentences: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Subject:
    """Whom or what a note is about: the full name, the short one used after it, and a pronoun."""

    full: str
    short: str
    pronoun: str


@dataclass(frozen=True)
class Kind:
    """A kind of note: what it is about, and its attributes by name."""

    name: str
    subject: Callable[[Words], Subject]
    attributes: Mapping[str, Attribute]
