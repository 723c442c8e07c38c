"""Notes, and questions about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from kvbind.errors import DocumentError
from kvbind.notes.incidents import INCIDENT
from kvbind.notes.kind import Kind, Subject
from kvbind.notes.people import BIOGRAPHY
from kvbind.notes.products import PRODUCT
from kvbind.notes.words import Split, Words
from kvbind.types import Document

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (BIOGRAPHY, PRODUCT, INCIDENT)}

LONGEST = 290
"""No note has more characters: it fits one small card."""

_PRONOUN_SHARE = 0.3


@dataclass(frozen=True)
class Note:
    """A document about one subject, and what it states: values by attribute."""

    document: Document
    kind: str
    subject: Subject
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Question:
    """A question, its answer, and the place of the note that holds it."""

    text: str
    answer: str
    gold: int
    kind: str
    attribute: str


@dataclass(frozen=True)
class Context:
    """Several notes, and several questions about them."""

    notes: tuple[Document, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Sample:
    """Several notes and one question; `gold` is the place of the note that holds the answer."""

    notes: tuple[Document, ...]
    question: str
    answer: str
    gold: int
    kind: str
    attribute: str


def make_sample(seed: int, *, notes: int = 5, kinds: Sequence[str] = tuple(KINDS), split: Split = "train") -> Sample:
    """A question over some notes; the same arguments give the same sample. Raises DocumentError for bad arguments.

    Each note is of a kind drawn from `kinds`. No value occurs twice in a sample.
    """
    context = make_context(seed, notes=notes, questions=1, kinds=kinds, split=split)
    asked = context.questions[0]
    return Sample(context.notes, asked.text, asked.answer, asked.gold, asked.kind, asked.attribute)


def make_context(
    seed: int,
    *,
    notes: int = 5,
    questions: int = 4,
    kinds: Sequence[str] = tuple(KINDS),
    split: Split = "train",
) -> Context:
    """Several notes, and questions about as many different facts in them, or about all if there are fewer."""
    if notes < 1 or questions < 1:
        raise DocumentError(f"{notes} notes and {questions} questions make no sample: ask for one or more of each")
    unknown = [name for name in kinds if name not in KINDS]
    if unknown or not kinds:
        raise DocumentError(f"unknown kinds of note {unknown}: choose some of {', '.join(KINDS)}")
    rng = Random(f"{split}/{seed}")
    words = Words(rng, split)
    made = [make_note(words, rng.choice(tuple(kinds))) for _ in range(notes)]
    return Context(tuple(note.document for note in made), tuple(ask(rng, made, questions)))


def make_note(words: Words, kind: str, *, facts: int | None = None, longest: int = LONGEST) -> Note:
    """A note that states some facts in random order: all that fit `longest` characters, or at most `facts`."""
    plan, rng = KINDS[kind], words.rng
    subject = plan.subject(words)
    names = rng.sample(list(plan.attributes), len(plan.attributes))
    stated: dict[str, str] = {}
    text = ""
    for name in names[:facts]:
        attribute = plan.attributes[name]
        value = words.draw(attribute.make)
        sentence = _sentence(rng, rng.choice(attribute.sentences), subject, value, first=not stated)
        if len(text) + 1 + len(sentence) <= longest:
            text = f"{text} {sentence}".lstrip()
            stated[name] = value
    return Note(Document(f"{kind}/{subject.full}", text, {"kind": kind}), kind, subject, stated)


def ask(rng: Random, notes: Sequence[Note], count: int) -> list[Question]:
    """Questions about `count` different facts of some notes, drawn at random."""
    facts = [(place, name) for place, note in enumerate(notes) for name in note.facts]
    return [_question(rng, notes[place], place, name) for place, name in rng.sample(facts, min(count, len(facts)))]


def _question(rng: Random, note: Note, place: int, name: str) -> Question:
    form = rng.choice(KINDS[note.kind].attributes[name].questions)
    return Question(form.format(N=note.subject.full), note.facts[name], place, note.kind, name)


def _sentence(rng: Random, form: str, subject: Subject, value: str, *, first: bool) -> str:
    name = subject.full if first else subject.short
    nominative = subject.pronoun if not first and rng.random() < _PRONOUN_SHARE else name
    sentence = form.format(S=nominative, s=nominative, N=name, v=value)
    return sentence[0].upper() + sentence[1:]
