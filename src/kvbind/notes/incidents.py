"""Incident reports."""

from functools import partial

from kvbind.notes import words
from kvbind.notes.kind import Attribute, Kind, Subject
from kvbind.notes.words import Words

_SITES = ("mill", "dock", "tunnel", "depot", "mine", "quarry", "yard", "dam", "station", "bakery", "plant", "tower")


def _incident(drawn: Words) -> Subject:
    name = drawn.draw(words.brand)
    return Subject(f"the incident at {name} {drawn.rng.choice(_SITES)}", f"the {name} incident", "it")


INCIDENT = Kind(
    "incident",
    _incident,
    {
        "date": Attribute(
            partial(words.date, first=1980),
            (
                "{S} happened on {v}.",
                "{S} took place on {v}.",
                "The date of {N} is {v}.",
                "{S} occurred on {v}.",
                "On {v} came {N}.",
                "{S} is dated {v}.",
                "The day of {N} was {v}.",
                "{S} fell on {v}.",
                "Logs place {N} on {v}.",
                "It was on {v} that {s} happened.",
                "{S} struck on {v}.",
            ),
            (
                "When did {N} happen?",
                "What is the date of {N}?",
                "On which date was {N}?",
                "On which day did {N} take place?",
            ),
        ),
        "time": Attribute(
            words.clock,
            (
                "{S} began at {v}.",
                "The clock stood at {v} for {N}.",
                "{S} started at {v}.",
                "The time of {N} was {v}.",
                "At {v} {s} began.",
                "{S} was noticed at {v}.",
                "Guards noted {N} at {v}.",
                "The alarm for {N} rang at {v}.",
                "{S} set in at {v}.",
                "Cameras show {N} from {v} on.",
                "{S} was timed at {v}.",
            ),
            (
                "At what time did {N} begin?",
                "What was the time of {N}?",
                "When by the clock did {N} start?",
                "At which time was {N} noticed?",
            ),
        ),
        "cause": Attribute(
            words.cause,
            (
                "{S} was caused by a {v}.",
                "The cause of {N} was a {v}.",
                "{S} began with a {v}.",
                "A {v} led to {N}.",
                "{S} goes back to a {v}.",
                "{S} followed a {v}.",
                "Engineers blame a {v} for {N}.",
                "{S} was due to a {v}.",
                "{S} was traced to a {v}.",
                "A {v} set off {N}.",
                "Behind {N} was a {v}.",
            ),
            (
                "What caused {N}?",
                "What was the cause of {N}?",
                "To what was {N} due?",
                "What led to {N}?",
            ),
        ),
        "reporter": Attribute(
            lambda rng: f"{words.given_name(rng)} {words.surname(rng)}",
            (
                "{S} was reported by {v}.",
                "{S} was called in by {v}.",
                "The report on {N} is by {v}.",
                "It was {v} who reported {N}.",
                "{S} was first seen by {v}.",
                "{S} was written up by {v}.",
                "The witness of {N} was {v}.",
                "The paper on {N} is signed {v}.",
                "News of {N} came from {v}.",
                "{S} was logged by {v}.",
                "The one to report {N} was {v}.",
            ),
            (
                "Who reported {N}?",
                "By whom was {N} reported?",
                "Who signed the report on {N}?",
                "Who was the witness of {N}?",
            ),
        ),
        "case number": Attribute(
            words.number,
            (
                "{S} has case number {v}.",
                "The case number of {N} is {v}.",
                "{S} is filed under {v}.",
                "{S} became case {v}.",
                "Case {v} deals with {N}.",
                "{S} is kept as file {v}.",
                "Files list {N} as {v}.",
                "{S} was booked as case {v}.",
                "The court knows {N} as case {v}.",
                "Look for {N} under {v}.",
                "{S} went into the books as {v}.",
            ),
            (
                "What is the case number of {N}?",
                "Under which number is {N} filed?",
                "Which case number does {N} have?",
                "What number was given to {N}?",
            ),
        ),
        "vehicle": Attribute(
            words.code,
            (
                "{S} involved truck {v}.",
                "Truck {v} was part of {N}.",
                "The truck in {N} was {v}.",
                "{S} damaged truck {v}.",
                "{S} left truck {v} a wreck.",
                "Truck {v} stood near {N}.",
                "{S} put truck {v} out of use.",
                "A truck marked {v} was in {N}.",
                "{S} cost the firm truck {v}.",
                "The plate of the truck in {N} was {v}.",
                "{S} buried truck {v}.",
            ),
            (
                "Which truck was part of {N}?",
                "What is the plate of the truck in {N}?",
                "Which truck did {N} involve?",
                "Which truck was hit by {N}?",
            ),
        ),
    },
)
