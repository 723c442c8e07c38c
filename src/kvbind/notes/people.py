"""Biographies."""

from functools import partial

from kvbind.notes import words
from kvbind.notes.kind import Attribute, Kind, Subject
from kvbind.notes.words import Words


def _person(drawn: Words) -> Subject:
    family = drawn.draw(words.surname)
    return Subject(f"{drawn.draw(words.given_name)} {family}", family, drawn.rng.choice(("he", "she")))


BIOGRAPHY = Kind(
    "biography",
    _person,
    {
        "birth date": Attribute(
            partial(words.date, last=2005),
            (
                "{S} was born on {v}.",
                "{S} came into the world on {v}.",
                "The birthday of {N} is {v}.",
                "{S} first saw daylight on {v}.",
                "On {v} {s} was born.",
                "The birth of {N} fell on {v}.",
                "Registers date the birth of {N} to {v}.",
                "{S} has {v} as a date of birth.",
                "Born on {v}, {s} was an only child.",
                "{S} gives {v} as the day of birth.",
                "The parents of {N} held a newborn on {v}.",
            ),
            (
                "When was {N} born?",
                "What is the birth date of {N}?",
                "On which date was {N} born?",
                "Which day is the birthday of {N}?",
            ),
        ),
        "birthplace": Attribute(
            words.town,
            (
                "{S} was born in {v}.",
                "{S} is a native of {v}.",
                "The birthplace of {N} is {v}.",
                "The cradle of {N} stood in {v}.",
                "{S} comes from {v} by birth.",
                "It was in {v} that {s} was born.",
                "{S} drew a first breath in {v}.",
                "The town where {s} was born is {v}.",
                "A hospital in {v} saw {N} born.",
                "{S} names {v} as birthplace.",
                "Born in {v}, {s} left it young.",
            ),
            (
                "Where was {N} born?",
                "What is the birthplace of {N}?",
                "In which town was {N} born?",
                "Of which town is {N} a native?",
            ),
        ),
        "home": Attribute(
            words.town,
            (
                "{S} now lives in {v}.",
                "The home of {N} is in {v}.",
                "{S} has settled in {v}.",
                "These days {s} resides in {v}.",
                "{S} has a house in {v}.",
                "Today {s} makes a home in {v}.",
                "{S} moved to {v} and stayed.",
                "Letters reach {N} in {v}.",
                "The present address of {N} is in {v}.",
                "{S} is a resident of {v}.",
                "{S} dwells in {v} at present.",
            ),
            (
                "Where does {N} live?",
                "In which town does {N} live now?",
                "Where is the home of {N}?",
                "What is the town of residence of {N}?",
            ),
        ),
        "university": Attribute(
            words.university,
            (
                "{S} studied at {v}.",
                "{S} took a degree from {v}.",
                "{S} is a graduate of {v}.",
                "The university of {N} was {v}.",
                "As a student {s} went to {v}.",
                "{S} graduated from {v}.",
                "{S} spent the student years at {v}.",
                "{S} was enrolled at {v}.",
                "Lectures at {v} formed {N}.",
                "{S} earned a diploma at {v}.",
                "{S} attended {v}.",
            ),
            (
                "Where did {N} study?",
                "Which university did {N} attend?",
                "From where did {N} graduate?",
                "At which university was {N} a student?",
            ),
        ),
        "subject": Attribute(
            words.subject,
            (
                "{S} read {v}.",
                "{S} majored in {v}.",
                "The field of {N} is {v}.",
                "{S} chose {v} as a subject.",
                "{S} holds a degree in {v}.",
                "{S} was trained in {v}.",
                "{S} wrote a thesis on {v}.",
                "The major of {N} was {v}.",
                "{S} took courses in {v}.",
                "{S} specialised in {v}.",
                "Exams in {v} were passed by {N}.",
            ),
            (
                "What did {N} study?",
                "What was the major of {N}?",
                "In which subject does {N} hold a degree?",
                "What is the field of {N}?",
            ),
        ),
        "employer": Attribute(
            words.firm,
            (
                "{S} works for {v}.",
                "{S} is employed by {v}.",
                "The employer of {N} is {v}.",
                "{S} has a post at {v}.",
                "{S} earns a living at {v}.",
                "{S} joined the staff of {v}.",
                "The firm that pays {N} is {v}.",
                "{S} has a desk at {v}.",
                "{S} was hired by {v}.",
                "At {v} {s} leads a team.",
                "{S} is on the payroll of {v}.",
            ),
            (
                "For whom does {N} work?",
                "Which firm employs {N}?",
                "What is the employer of {N}?",
                "Where is {N} employed?",
            ),
        ),
        "number": Attribute(
            words.number,
            (
                "{S} has staff number {v}.",
                "The staff number of {N} is {v}.",
                "{S} is listed as number {v}.",
                "{S} carries a badge numbered {v}.",
                "Number {v} belongs to {N}.",
                "The badge of {N} reads {v}.",
                "{S} signs in with number {v}.",
                "{S} was given number {v}.",
                "The files keep {N} under {v}.",
                "{S} holds pass number {v}.",
                "On the roll {s} is number {v}.",
            ),
            (
                "What is the staff number of {N}?",
                "Which number does {N} have?",
                "Under which number is {N} listed?",
                "What number is on the badge of {N}?",
            ),
        ),
    },
)
