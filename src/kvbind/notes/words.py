"""Open vocabularies: names, towns, firms, codes and numbers, built from syllables and digits.

Every word belongs to one side, by a checksum of its letters: what is drawn for evaluation never occurs in training.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

Split = Literal["train", "eval"]

EVAL_SHARE = 8
"""One word in so many belongs to evaluation."""

_ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w z".split()
_VOWELS = "a e i o u ai ea ie o a e i".split()
_CODAS = "l m n nd r rn rt s sk st t x ck lm nt".split()
_NAME_ENDS = "a o e i in el an is or us eth ira ena ano".split()
_SURNAME_ENDS = "son er ley field man ovic ard well ström ker ins ett".split()
_TOWN_ENDS = "ton ford burg ham wick stad port mouth by dale haven minster".split()
_FIRM_ENDS = ("Works", "Group", "Labs", "Partners", "Systems", "Freight", "Foods", "Marine", "Energy", "Press")
_LETTERS = "ABCDEFGHJKLMNPRSTUVWXZ"
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_FIELDS = (
    *("chemistry", "geology", "botany", "economics", "history", "law", "medicine", "physics", "music", "optics"),
    *("statistics", "linguistics", "philosophy", "acoustics", "zoology", "architecture"),
)
_BRANCHES = (
    *("marine", "applied", "medieval", "rural", "modern", "nuclear", "clinical", "urban", "general", "polar"),
    *("industrial", "comparative", "tropical", "digital"),
)
_FAULTS = (
    *("leak", "short circuit", "blockage", "crack", "landslip", "power cut", "fire", "jam", "misfire", "overflow"),
    *("spill", "breakdown", "collapse"),
)
_PLACES = (
    *("pump", "roof", "boiler", "cable", "valve", "bridge", "cellar", "crane", "turbine", "signal", "gate", "tank"),
    *("lift", "oven"),
)


def side(word: str) -> Split:
    """The split that a word belongs to."""
    return "eval" if zlib.crc32(word.encode()) % EVAL_SHARE == 0 else "train"


@dataclass
class Words:
    """Draws words of one split, never the same one twice."""

    rng: Random
    split: Split
    taken: set[str] = field(default_factory=set)

    def draw(self, make: Callable[[Random], str]) -> str:
        """A word of this split that was not drawn before."""
        while True:
            word = make(self.rng)
            if side(word) == self.split and word not in self.taken:
                self.taken.add(word)
                return word


def _stem(rng: Random) -> str:
    return rng.choice(_ONSETS) + rng.choice(_VOWELS) + (rng.choice(_CODAS) if rng.random() < 0.6 else "")


def _word(rng: Random, ends: list[str]) -> str:
    stem = _stem(rng) if rng.random() < 0.6 else rng.choice(_ONSETS) + rng.choice(_VOWELS) + _stem(rng)
    return (stem + rng.choice(ends)).capitalize()


def given_name(rng: Random) -> str:
    """A given name."""
    return _word(rng, _NAME_ENDS)


def surname(rng: Random) -> str:
    """A family name."""
    return _word(rng, _SURNAME_ENDS)


def town(rng: Random) -> str:
    """A town."""
    return _word(rng, _TOWN_ENDS)


def firm(rng: Random) -> str:
    """A firm: a made-up word and what it is."""
    return f"{_word(rng, _CODAS)} {rng.choice(_FIRM_ENDS)}"


def brand(rng: Random) -> str:
    """A made-up word for a product."""
    return _word(rng, _CODAS + _NAME_ENDS)


def university(rng: Random) -> str:
    """A university, named after a town or a person."""
    return f"{town(rng)} University" if rng.random() < 0.6 else f"{surname(rng)} College"


def subject(rng: Random) -> str:
    """A field of study."""
    return f"{rng.choice(_BRANCHES)} {rng.choice(_FIELDS)}"


def cause(rng: Random) -> str:
    """What went wrong: a fault and the thing it befell."""
    return f"{rng.choice(_PLACES)} {rng.choice(_FAULTS)}"


def number(rng: Random) -> str:
    """A number of five digits."""
    return str(rng.randint(10000, 99999))


def code(rng: Random) -> str:
    """Two letters and four digits, as in KX-4471."""
    return f"{rng.choice(_LETTERS)}{rng.choice(_LETTERS)}-{rng.randint(1000, 9999)}"


def date(rng: Random, first: int = 1900, last: int = 2029) -> str:
    """A date, as in 14 March 1968."""
    return f"{rng.randint(1, 28)} {rng.choice(_MONTHS)} {rng.randint(first, last)}"


def clock(rng: Random) -> str:
    """A time of day, as in 14:37."""
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"


def weight(rng: Random) -> str:
    """A weight in kilograms, as in 48.27 kg."""
    return f"{rng.randint(1, 99)}.{rng.randint(0, 99):02} kg"
