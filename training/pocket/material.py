"""What the reader is trained on: notes with their questions, and two plainer things to practise reading and finding."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from kvbind.bench import needles as ruler
from kvbind.bench.tasks.prompts import ONLY
from kvbind.notes import KINDS, Words, ask, make_note
from kvbind.notes import words as vocabulary

READ = "Read the note."
READ_ABOUT = "Read the note about {}."


@dataclass(frozen=True)
class Entry:
    """A text, what it is about ("" for nothing), questions with their answers, and what a prompt says before all."""

    text: str
    subject: str
    questions: tuple[tuple[str, str], ...]
    before: str = ""


_MAKERS = (
    *(vocabulary.surname, vocabulary.town, vocabulary.number, vocabulary.code, vocabulary.date, vocabulary.firm),
    *(vocabulary.given_name, vocabulary.clock, vocabulary.weight, vocabulary.brand, vocabulary.subject),
)


def jumble(rng: Random, words: int) -> Entry:
    """Unrelated words and numbers: every token must be read, none can be guessed."""
    drawn = Words(rng, "train")
    return Entry(" ".join(drawn.draw(rng.choice(_MAKERS)) for _ in range(words)) + ".", "", ())


def pairs(rng: Random, count: int) -> Entry:
    """Names with a value beside each: the plainest thing to look up."""
    drawn = Words(rng, "train")
    stated = []
    while len(stated) < count:
        name, value = drawn.draw(rng.choice((vocabulary.surname, vocabulary.brand))), drawn.draw(rng.choice(_MAKERS))
        if name not in " ".join((key + " " + held for key, held in stated)):
            stated.append((name, value))
    text = " ".join(f"{name}: {value}." for name, value in stated)
    return Entry(text, stated[0][0], tuple((f"What stands beside {name}?", value) for name, value in stated))


def note(rng: Random, facts: int | None) -> Entry:
    """A note of the training split, and a question about each of its facts."""
    made = make_note(Words(rng, "train"), rng.choice(list(KINDS)), facts=facts)
    questions = tuple((question.text, question.answer) for question in ask(rng, [made], len(made.facts)))
    return Entry(made.document.text, made.subject.full, questions)


def needles(rng: Random) -> Entry:
    """A short note with some of RULER's needles between its sentences, and the questions that the benchmark asks."""
    text = note(rng, rng.randint(1, 2)).text
    keys = rng.randint(1, 3)
    drawn = ruler.draw(rng, rng.choice(("number", "number", "word")), keys=keys, queries=keys, beside=text)
    (planted,), _ = ruler.plant([text], drawn, [rng.uniform(0, 100) for _ in drawn])
    asked = [ruler.ask([needle]) for needle in drawn]
    questions = tuple((f"{question} {ONLY}\nAnswer:", answer) for _, question, answer in asked)
    return Entry(planted, drawn[0].key, questions, before=asked[0][0])


def make(kind: str, rng: Random) -> Entry:
    """An entry of a kind: `brief` and `full` notes, `pairs`, `jumble`, `needles`, and `tiny`, a few words of any."""
    if kind == "tiny":
        return rng.choice((jumble(rng, rng.randint(1, 3)), pairs(rng, rng.randint(1, 2)), note(rng, 1)))
    if kind == "jumble":
        return jumble(rng, rng.randint(3, 16))
    if kind == "pairs":
        return pairs(rng, rng.randint(2, 9))
    if kind == "needles":
        return needles(rng)
    return note(rng, rng.randint(1, 3) if kind == "brief" else None)


KIND_NAMES = ("tiny", "brief", "full", "pairs", "jumble", "needles")


@dataclass(frozen=True)
class Level:
    """How hard the contexts are: how many notes, and how often each kind (in the order of KIND_NAMES) is drawn."""

    notes: tuple[int, int]
    mixture: tuple[float, float, float, float, float, float]


LEVELS: Sequence[Level] = (
    Level((1, 1), (0.7, 0.1, 0.0, 0.1, 0.1, 0.0)),
    Level((1, 1), (0.1, 0.4, 0.0, 0.25, 0.25, 0.0)),
    Level((1, 1), (0.05, 0.1, 0.4, 0.15, 0.2, 0.1)),
    Level((1, 2), (0.0, 0.1, 0.55, 0.1, 0.15, 0.1)),
    Level((1, 3), (0.0, 0.05, 0.7, 0.05, 0.1, 0.1)),
    Level((1, 5), (0.0, 0.05, 0.75, 0.05, 0.05, 0.1)),
    Level((1, 7), (0.0, 0.05, 0.75, 0.05, 0.05, 0.1)),
    Level((1, 12), (0.0, 0.05, 0.75, 0.05, 0.05, 0.1)),
    Level((1, 16), (0.0, 0.05, 0.75, 0.05, 0.05, 0.1)),
)

INSTRUCTIONS = (
    *("Answer the question from these notes.", "Here are some notes.", "Read what follows, and answer briefly."),
    *("You are given notes, and a question about one of them.", f"The following are given passages. {ONLY}"),
)
BETWEEN = ("Next:", "And another one:", "* ", "A note:", "From the archive:")
DUMMY = "x"
"""What a method may put before a passage while it is compiled."""


def leads(rng: Random, notes: int) -> list[tuple[str, ...]]:
    """What stands before each note, every string encoded alone: mostly nothing, else an instruction, words, dummies."""
    before: list[tuple[str, ...]] = [()] * notes
    if rng.random() < 0.2:
        before[0] = (rng.choice(INSTRUCTIONS) + rng.choice(("\n\n", " ", "\n")),)
    kind = rng.random()
    if kind < 0.08:
        before = [(*lead, rng.choice(BETWEEN) + " ") for lead in before]
    elif kind < 0.2:
        before = [(*lead, *[DUMMY] * rng.randint(1, 4)) for lead in before]
    return before


def paragraphs(entries: Sequence[Entry], rng: Random) -> list[Entry]:
    """Now and then two notes in one paragraph: a text in which a note begins where another ends."""
    if rng.random() > 0.15:
        return list(entries)
    joined = []
    for number in range(0, len(entries), 2):
        pair = entries[number : number + 2]
        questions = tuple(question for entry in pair for question in entry.questions)
        joined.append(Entry(" ".join(entry.text for entry in pair), pair[0].subject, questions, pair[0].before))
    return joined


def draw_kinds(level: Level, rng: Random, share: float) -> list[str]:
    """The kinds of a context's notes; all are of one kind, but for notes of all lengths.

    `share`, 0 to 1, says where between the level's fewest and most their number is.
    """
    kind = rng.choices(KIND_NAMES, level.mixture)[0]
    if kind in ("jumble", "tiny"):
        return [kind]
    fewest, most = level.notes
    return [kind] * (fewest + int(share * (most - fewest + 1)))
