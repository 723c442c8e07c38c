"""Two F1s that must not be mixed: LongBench's, per example, and the corpus micro-F1 of KV Packet and SemPIC."""

import re
import string
from collections import Counter
from collections.abc import Iterable

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only: other marks stay, as in LongBench
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def longbench_tokens(text: str) -> list[str]:
    """LongBench's tokens: lower case, ASCII punctuation deleted, then articles, then split at blanks."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def longbench_f1(prediction: str, answers: Iterable[str]) -> float:
    """LongBench's F1 of tokens, 0 to 1, with the answer that fits best; 0 without a common token."""
    said = Counter(longbench_tokens(prediction))
    return max((_f1(*_overlap(said, Counter(longbench_tokens(answer)))) for answer in answers), default=0.0)


def micro_counts(prediction: str, answer: str) -> tuple[int, int, int]:
    """True positives, false positives and false negatives of one example's tokens, for `micro_f1`.

    Both sides in lower case, without blanks and full stops at the ends, split at blanks.
    """
    return _overlap(Counter(_trimmed(prediction).split()), Counter(_trimmed(answer).split()))


def micro_f1(counts: Iterable[tuple[int, int, int]]) -> float:
    """Corpus micro-F1, 0 to 1: counts summed over examples, F1 once; 0 without a true positive."""
    sums = [sum(column) for column in zip(*counts, strict=True)]
    return _f1(*sums) if sums else 0.0


def _trimmed(text: str) -> str:
    return text.lower().strip().rstrip(".")


def _overlap(said: Counter[str], wanted: Counter[str]) -> tuple[int, int, int]:
    common = (said & wanted).total()
    return common, said.total() - common, wanted.total() - common


def _f1(common: int, wrong: int, missed: int) -> float:
    return 2 * common / (2 * common + wrong + missed) if common else 0.0
