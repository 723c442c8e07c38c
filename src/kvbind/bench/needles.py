"""Needles in a haystack, after RULER: sentences with a magic number, word or UUID, put between those of a text.

RULER's variants: single (one key and value), multikey (several keys, one asked for), multivalue (several values of the
key), multiquery (several keys asked for).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from uuid import UUID

from kvbind.bench.chunking import sentences
from kvbind.errors import BenchError

_ADJECTIVES = """
    amber ancient arctic bitter bold brave brisk bronze calm clever cloudy coastal copper cosmic crimson curious
    dusty eager early elegant faint fearless fierce frosty gentle giant gilded golden hasty hidden hollow humble
    icy idle jolly keen lively lonely lucky mellow mighty misty modest narrow nimble noble patient pale plain
    proud quick quiet rapid restless rustic scarlet secret silent silver sleepy solemn stormy sturdy tender vivid
""".split()
_NOUNS = """
    acorn anchor anvil apple arrow badger banner barrel basin beacon beaver bell bottle branch bridge bucket
    button cabin candle canyon carpet castle cellar chimney clover comet compass coral cottage cradle cricket
    crown dagger desert dolphin engine falcon feather ferry fiddle flute forest fountain garden glacier goblet
    hammer harbor harvest helmet heron island jacket kettle ladder lantern lemon lizard magnet mango marble meadow
    mirror needle ocean orchard otter paddle parrot pebble pepper pillow planet pocket pumpkin quarry rabbit
    ribbon saddle sailor shadow spider temple ticket tunnel turtle valley violin walnut willow window
""".split()
_TRIES = 100


def _number(rng: Random) -> str:
    return str(rng.randint(1_000_000, 9_999_999))


def _word(rng: Random) -> str:
    return f"{rng.choice(_ADJECTIVES)}-{rng.choice(_NOUNS)}"


def _uuid(rng: Random) -> str:
    return str(UUID(int=rng.getrandbits(128), version=4))


VALUES: Mapping[str, Callable[[Random], str]] = {"number": _number, "word": _word, "uuid": _uuid}
"""How a value of each kind is made."""


@dataclass(frozen=True)
class Needle:
    """A key and a value of a kind, and whether the key is asked for."""

    kind: str
    key: str
    value: str
    asked: bool = True

    @property
    def sentence(self) -> str:
        """What stands in the text."""
        return f"One of the special magic {self.kind}s for {self.key} is: {self.value}."


def draw(rng: Random, kind: str, *, keys: int = 1, values: int = 1, queries: int = 1, beside: str = "") -> list[Needle]:
    """Needles of `keys` different keys with `values` values each, of which the first `queries` keys are asked for.

    No value occurs twice, none is a key, and no key or value occurs in `beside`. BenchError where words run out.
    """
    taken: set[str] = set()

    def fresh(make: Callable[[Random], str]) -> str:
        for _ in range(_TRIES):
            word = make(rng)
            if word not in taken and word not in beside:
                taken.add(word)
                return word
        raise BenchError(f"{len(taken)} different words are drawn and no other is found: ask for fewer needles")

    names = [fresh(_word) for _ in range(keys)]
    return [Needle(kind, key, fresh(VALUES[kind]), at < queries) for at, key in enumerate(names) for _ in range(values)]


def plant(chunks: Sequence[str], needles: Sequence[Needle], depths: Sequence[float]) -> tuple[list[str], list[int]]:
    """The chunks with needles between their sentences, and in which chunk each needle stands.

    A depth is the share, in percent, of all sentences that stand before the needle.
    """
    split = [sentences(chunk) for chunk in chunks]
    spots = [(place, number) for place, chunk in enumerate(split) for number in range(len(chunk))]
    spots.append((len(split) - 1, len(split[-1])))
    places = [spots[round((len(spots) - 1) * depth / 100)] for depth in depths]
    # From the back, so that the numbers of the sentences before stay as they are.
    for (place, number), needle in sorted(zip(places, needles, strict=True), key=lambda pair: pair[0], reverse=True):
        split[place].insert(number, f" {needle.sentence}" if number else f"{needle.sentence} ")
    return ["".join(chunk).strip() for chunk in split], [place for place, _ in places]


def ask(needles: Sequence[Needle]) -> tuple[str, str, str]:
    """What is said before the text, the question after it, and its answer: the values in the order of the needles."""
    asked = [needle for needle in needles if needle.asked]
    keys, kind = list(dict.fromkeys(needle.key for needle in asked)), asked[0].kind
    names = keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])}, and {keys[-1]}"
    many = len(asked) > 1
    nouns = f"{kind}s" if many else kind
    hidden = f"Some special magic {nouns} are" if many else f"A special magic {nouns} is"
    before = f"{hidden} hidden within the following text. Make sure to memorize it. I will quiz you about the {nouns} "
    what = f"What {'are all' if many else 'is'} the special magic {nouns} for {names} mentioned in the provided text?"
    return f"{before}afterwards.\n", what, " ".join(needle.value for needle in asked)
