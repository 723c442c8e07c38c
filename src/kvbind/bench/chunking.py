"""How contexts are cut: LongBench's truncation, passages, and pieces of so many tokens at sentence ends."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

Encode = Callable[[str], list[int]]
Decode = Callable[[list[int]], str]
Span = tuple[int, int]

_ABBREVIATED = "".join(rf"(?<!\b{word})" for word in ("Mr", "Mrs", "Ms", "Dr", "St", "[A-Z]"))
_SENTENCE = re.compile(
    rf"(?:{_ABBREVIATED}\.|[!?\u2026\u061f\u0964])[\"'\u2019\u201d\u00bb)\]]*(?=\s++(?![a-z]))"
    r"|[。！？][\u201d\u2019」』）]*"
    r"|\S(?=[^\S\n]*\n\s*\n)"
)
_LINE = re.compile(r"\S(?=[^\S\n]*\n)")
_WORD = re.compile(r"\S+")
_BOUNDARIES = (_SENTENCE, _LINE, _WORD)  # from the best to the worst


@dataclass(frozen=True)
class Kept:
    """What truncation leaves of a prompt: its ends, and spans of characters of its context."""

    before: str
    after: str
    spans: tuple[Span, ...]


def cut_middle(before: str, context: str, after: str, limit: int, encode: Encode, decode: Decode) -> Kept:
    """LongBench's truncation: of a filled prompt longer than `limit` tokens, the first and the last half of that stay.

    The text is told from its tokens by the lengths of the two decoded halves; a character cut in two is left out.
    `limit` is 2 or more. Tokens of the special kind are not counted.
    """
    prompt = before + context + after
    ids = encode(prompt)
    if len(ids) <= limit:
        return Kept(before, after, ((0, len(context)),))
    half = limit // 2
    first = len(decode(ids[:half]).rstrip("\ufffd"))
    last = max(first, len(prompt) - len(decode(ids[-half:]).lstrip("\ufffd")))
    start, end = len(before), len(before) + len(context)

    def kept(low: int, high: int) -> list[Span]:
        return [span for span in ((low, min(high, first)), (max(low, last), high)) if span[0] < span[1]]

    ends = ["".join(prompt[slice(*span)] for span in kept(*part)) for part in ((0, start), (end, len(prompt)))]
    return Kept(ends[0], ends[1], tuple((low - start, high - start) for low, high in kept(start, end)))


def passages(context: str) -> list[Span]:
    """Where LongBench's passages stand, each without its "Passage 3:" line; the whole context if there is none."""
    headers = list(re.finditer(r"^Passage \d+:\n", context, re.MULTILINE))
    starts = [0, *(header.end() for header in headers)]
    ends = [*(header.start() for header in headers), len(context)]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def shots(context: str) -> list[Span]:
    """Where TriviaQA's solved examples stand, each from its "Passage:" line to its answer."""
    starts = [match.start() for match in re.finditer(r"^Passage:\n", context, re.MULTILINE)]
    bounds = [0, *(start for start in starts if start), len(context)]
    return list(pairwise(bounds))


def whole(context: str) -> list[Span]:
    """The whole context as one span."""
    return [(0, len(context))]


def common(spans: list[Span], kept: tuple[Span, ...]) -> list[Span]:
    """The parts of the spans that were kept, in order."""
    pairs = [(max(low, first), min(high, last)) for first, last in kept for low, high in spans]
    return [(low, high) for low, high in pairs if low < high]


def sentences(text: str) -> list[str]:
    """Consecutive sentences, each with the blanks before it: joined, they are the text again."""
    return _cut(text, _SENTENCE)


def pieces(text: str, tokens: int, encode: Encode) -> list[str]:
    """Consecutive pieces of about `tokens` tokens at most, which end where a sentence does, without blanks at the ends.

    A longer sentence is cut at line ends, then between words, and a longer word anywhere. Tokens of the parts are
    counted alone and added.
    """
    made: list[str] = []
    size = tokens + 1  # so that the first part opens a piece
    for part, count in _parts(text, tokens, encode, _BOUNDARIES):
        if size + count > tokens:
            made.append("")
            size = 0
        made[-1] += part
        size += count
    return [piece.strip() for piece in made if piece.strip()]


def _parts(
    text: str, tokens: int, encode: Encode, boundaries: tuple[re.Pattern[str], ...]
) -> Iterator[tuple[str, int]]:
    """Parts that fit, as large as the boundaries allow, with their numbers of tokens."""
    count = len(encode(text))
    if count <= tokens or len(text) < 2:
        yield text, count
        return
    middle = len(text) // 2
    parts = _cut(text, boundaries[0]) if boundaries else [text[:middle], text[middle:]]
    for part in parts:
        yield from _parts(part, tokens, encode, boundaries[1:])


def _cut(text: str, boundary: re.Pattern[str]) -> list[str]:
    ends = sorted({*(match.end() for match in boundary.finditer(text)), len(text)} - {0})
    return [text[start:end] for start, end in pairwise([0, *ends])]
