"""Two F1s that must not be mixed: LongBench's, per example, and the corpus micro-F1 of KV Packet and SemPIC."""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only: other marks stay, as in LongBench
_THOUGHTS = re.compile(r"<think>.*", re.DOTALL)
_TAGS = re.compile(r"<\|[^<>|]*\|>")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")

_BIOGRAPHY = (
    *("studied", "attended", "works for", "university was", "employed by"),
    *(" in ", " at ", " on ", " was ", " from ", " is "),
)
_NEEDLE = ("is:", "are:", "is", "are", "in")
_EDGES = " :.,"


def first_line(text: str) -> str:
    """The first line that is not empty: all that LongBench scores of TriviaQA's predictions."""
    return text.lstrip("\n").split("\n")[0]


def without_thoughts(text: str) -> str:
    """What a model that thinks aloud says in the end: no `<think>…</think>`, nothing of one that is open, no tags."""
    return _TAGS.sub("", _THOUGHTS.sub("", text.rpartition("</think>")[2])).strip(" ")


def longbench_tokens(text: str) -> list[str]:
    """LongBench's tokens: lower case, ASCII punctuation deleted, then articles, then split at blanks."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def longbench_f1(prediction: str, answers: Iterable[str]) -> float:
    """LongBench's F1 of tokens, 0 to 1, with the answer that fits best; 0 without a common token."""
    said = Counter(longbench_tokens(prediction))
    return max((_f1(*_overlap(said, Counter(longbench_tokens(answer)))) for answer in answers), default=0.0)


def exact_match(prediction: str, answers: Iterable[str]) -> float:
    """1 where LongBench's tokens are those of an answer, in order, else 0; no tokens match nothing, as in the F1."""
    said = longbench_tokens(prediction)
    return float(bool(said) and any(said == longbench_tokens(answer) for answer in answers))


def micro_counts(prediction: str, answer: str, extract: str = "whole") -> tuple[int, int, int]:
    """True positives, false positives and false negatives of one example's tokens, for `micro_f1`.

    Both sides in lower case, without blanks and full stops at the ends, split at blanks; `extract` names what is done
    to the prediction then, a key of `EXTRACT`.
    """
    said = Counter(EXTRACT[extract](_trimmed(prediction)).split())
    return _overlap(said, Counter(_trimmed(answer).split()))


def micro_f1(counts: Iterable[tuple[int, int, int]]) -> float:
    """Corpus micro-F1, 0 to 1: counts summed over a task's examples, F1 once; 0 without a true positive.

    Answers "Ruth Bell" and "Oslo", predictions "Ruth" and "it is Oslo": counts (1, 0, 1) and (1, 2, 0), summed
    (2, 2, 1), precision 2/4, recall 2/3, F1 = 4/7.
    """
    sums = [sum(column) for column in zip(*counts, strict=True)]
    return _f1(*sums) if sums else 0.0


def _trimmed(text: str) -> str:
    return text.lower().strip().rstrip(".")


def _overlap(said: Counter[str], wanted: Counter[str]) -> tuple[int, int, int]:
    common = (said & wanted).total()
    return common, said.total() - common, wanted.total() - common


def _f1(true: int, false: int, missed: int) -> float:
    return 2 * true / (2 * true + false + missed) if true else 0.0


def _after(text: str, marks: Iterable[str]) -> str:
    """What follows the first of the marks, in their order, that occurs; the whole text if none does."""
    for mark in marks:
        if mark in text:
            return text.split(mark, 1)[1].strip(_EDGES)
    return text


def _whole(text: str) -> str:
    return text


def _answer(text: str) -> str:
    parts = re.split(r"answer\s*:", text, flags=re.IGNORECASE)
    return parts[-1] if len(parts) > 1 else ""


def _biography(text: str) -> str:
    return _after(text, _BIOGRAPHY).strip(_EDGES)


def _niah(text: str) -> str:
    return _after(text, _NEEDLE).replace(",", " ").replace("and", " ")


EXTRACT: Mapping[str, Callable[[str], str]] = {
    "whole": _whole,
    "answer": _answer,
    "biography": _biography,
    "niah": _niah,
}
"""What is done to a prediction in lower case before corpus micro-F1 (KV Packet, SemPIC; their code).

"whole" nothing; "answer" what follows the last "Answer:", nothing if there is none; "biography" and "niah" what follows
the first phrase of a list ("attended", " is "; "are:"), and for "niah" commas and every "and", inside words too, become
blanks.
"""
