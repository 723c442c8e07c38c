"""An embedder without a model: weighted words, hashed into buckets."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import torch
from torch import Tensor

from kvbind.errors import EmbedderError

# Weights chosen on XQuAD (questions against all paragraphs, in several languages); the optimum is flat.
FREQUENT_WEIGHT = 0.15
GRAM_WEIGHT = 0.5
CJK_CHARACTER_WEIGHT = 0.3
GRAM = 4

# The inverse document frequency of a word is unknown where each document is embedded alone. These stand in
# for it: words that are frequent in any English text, and the pieces that apostrophes leave (s, t, ll, ...).
FREQUENT = frozenset(
    """
    a about above after again against all also am among an and any are as at be became because become been before
    being below between both but by called can could d did do does doing down during each either few first for from
    further had has have having he her here hers him his how however i if in into is it its itself just kind known
    less like ll m made make many may me might more most much must my name near no nor not now of off often on once
    one only onto or other our out over own part people re s same she should since so some such t than that the
    their them then there these they this those though three through time to too toward two type under until up
    upon us use used using ve very was way we well were what when where whether which while who whom whose why will
    with within without would year years you your
    """.split()
)

# Scripts that are written without blanks, or whose words carry particles: kana, Han, Hangul.
CJK = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U000323af]+)")


class LexicalEmbedder:
    """Hashed bag of words: needs no model, knows no synonyms.

    Words (NFKC, case-folded, English plurals stripped), 4-grams of longer words at half weight, and single
    characters and bigrams in Chinese, Japanese and Korean are hashed into `dim` − 1 signed buckets with the
    weight (1 + ln count); a built-in list of frequent English words counts 0.15. The remaining bucket is for texts
    without any word: they all get that one unit vector, at cosine 0 to every other text. Raises `EmbedderError` if
    `dim` is below 2.
    """

    def __init__(self, dim: int = 4096) -> None:
        if dim < 2:
            raise EmbedderError(f"dim={dim} is too small for the lexical embedder: give 2 or more, 4096 is usual")
        self.dim = dim
        self.identity = f"lexical:1:dim={dim}"  # the 1 stands for this file's recipe: count on when vectors change

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Unit rows (N, dim), float32."""
        rows = torch.zeros(len(texts), self.dim, dtype=torch.float32)
        for row, text in zip(rows, texts, strict=True):
            buckets = self._buckets(text)
            if buckets:
                row[torch.tensor(list(buckets))] = torch.tensor(list(buckets.values()), dtype=torch.float32)
            if row.norm() < 1e-6:  # no word, or all cancelled
                row.zero_()[0] = 1
        return torch.nn.functional.normalize(rows, dim=-1)

    def _buckets(self, text: str) -> dict[int, float]:
        """Bucket → signed weight, never bucket 0."""
        buckets: dict[int, float] = {}
        for (feature, weight), count in Counter(_features(text)).items():
            number = int.from_bytes(blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
            bucket = 1 + (number >> 1) % (self.dim - 1)
            signed = weight if number & 1 else -weight
            buckets[bucket] = buckets.get(bucket, 0.0) + signed * (1 + math.log(count))
        return buckets


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Every occurrence of a feature, with the feature's weight."""
    for token in _tokens(text):
        for index, piece in enumerate(CJK.split(token)):
            if index % 2:  # what the pattern's group matched
                yield from ((f"c:{character}", CJK_CHARACTER_WEIGHT) for character in piece)
                yield from ((f"w:{piece[start : start + 2]}", 1.0) for start in range(len(piece) - 1))
            elif piece:
                yield from _word_features(piece)


def _word_features(piece: str) -> Iterator[tuple[str, float]]:
    word = _singular(piece)
    if piece in FREQUENT or word in FREQUENT:
        yield f"w:{word}", FREQUENT_WEIGHT
        return
    yield f"w:{word}", 1.0
    if len(word) > GRAM:
        yield from ((f"g:{word[start : start + GRAM]}", GRAM_WEIGHT) for start in range(len(word) - GRAM + 1))


def _tokens(text: str) -> list[str]:
    """Runs of letters, digits and combining marks; without the marks, Indic words would fall apart."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in folded).split()


def _singular(word: str) -> str:
    """The word without an English plural ending; wrong guesses do no harm, both sides make them."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
