"""Which methods are as good as full prefill, which are not, and which the questions are too few to tell of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvbind.bench.groups import Group
from kvbind.bench.statistics import FEWEST, LEVEL
from kvbind.bench.tables import Row, compare, quality, rows
from kvbind.errors import BenchError

Verdict = Literal["full prefill", "within", "worse", "not told", "failed"]

WHOLE = 100.0  # points that a question wholly lost costs
RULE_OF_THREE = 3.0


@dataclass(frozen=True)
class Judged:
    """A method's numbers against full prefill, and what they tell."""

    row: Row
    verdict: Verdict
    reuses: bool

    @property
    def loss(self) -> float:
        """How many points of quality it is behind full prefill."""
        return -self.row.full.interval.value if self.row.full else 0.0

    @property
    def ttft(self) -> float:
        """Its time to first token over full prefill's."""
        return self.row.ratio.interval.value if self.row.ratio else 1.0


@dataclass(frozen=True)
class Findings:
    """What a search found: the method recommended, whether it is proven to be within the margin, and why.

    `against` is the full prefill that quality and time are set against; `questions` it answered; `judged` are all
    methods, fastest first. `agreement`: quality is agreement with the answers of full prefill over text; `left_out`
    questions had none.
    """

    method: str
    proven: bool
    reason: str
    against: str
    questions: int
    margin: float
    agreement: bool
    judged: Sequence[Judged]
    left_out: int = 0


def fewest_questions(margin: float) -> int:
    """How many questions it takes to tell.

    By the rule of three, a method that loses nothing on n questions may still lose 3/n of all questions wholly, which
    is 300/n points: with fewer than 150/margin of them a loss of twice the margin is possible whatever was seen.
    """
    return max(FEWEST, math.ceil(RULE_OF_THREE * WHOLE / (2 * margin)))


def judge(group: Group, task: str, margin: float) -> tuple[str, list[Judged]]:
    """The full prefill to compare with, and all methods, fastest first, those that answered nothing last.

    A method is *within* the margin if, over enough questions, its mean difference to full prefill is above -margin and
    its interval's lower end above -2 · margin; *worse* if the interval's upper end is below -margin, or if that dropped
    it earlier. With n methods that reuse, the lower end is that of a 100 - 5/n % interval (Bonferroni): of many
    methods tried, one looks good by chance more often.
    """
    against = best_full(group, task)
    judged = [
        Judged(row, _verdict(group, task, row, against, margin), group.methods[row.method]["write"] is not None)
        for row in rows(group, [task], against)
    ]
    return against, sorted(judged, key=lambda one: (one.verdict == "failed", one.ttft))


def best_full(group: Group, task: str) -> str:
    """Of the methods that reuse nothing, the one with the best quality among those that answered most questions."""
    found = [
        (len(group.answered(task, method)), interval.value, method)
        for method, facts in group.methods.items()
        if facts["write"] is None and (interval := quality(group, [task], method))
    ]
    if not found:
        reasons = (record["error"] for failed in group.errors.values() for record in failed.values())
        raise BenchError(f"full prefill answered no question ({next(reasons, 'none was asked')})")
    return max(found, key=lambda one: one[:2])[2]  # of equals the first


def _verdict(group: Group, task: str, row: Row, against: str, margin: float) -> Verdict:
    if row.method == against:
        return "full prefill"
    wanted, answered = group.answered(task, against).keys(), group.answered(task, row.method).keys()
    failed = group.errors.get((task, row.method), {}).keys() & wanted
    reusing = sum(facts["write"] is not None for facts in group.methods.values())
    strict = compare(group, [task], row.method, against, 100 - (100 - LEVEL) / max(1, reusing))
    if failed or row.full is None or strict is None:
        return "failed"
    interval = row.full.interval
    dropped = bool(wanted - answered)
    if dropped or (interval.examples >= FEWEST and interval.high < -margin):
        return "worse"
    enough = interval.examples >= fewest_questions(margin)
    return "within" if enough and interval.value > -margin and strict.interval.low > -2 * margin else "not told"


def recommend(group: Group, task: str, margin: float, *, agreement: bool = False) -> Findings:
    """The fastest method within the margin; where none that reuses can be told to be, the one of best quality."""
    against, judged = judge(group, task, margin)
    questions = len(group.answered(task, against))
    chosen, proven, reason = _choose(judged, questions, margin, against)
    return Findings(chosen.row.method, proven, reason, against, questions, margin, agreement, judged)


def _choose(judged: Sequence[Judged], questions: int, margin: float, against: str) -> tuple[Judged, bool, str]:
    points = f"{margin:g} points"
    within = [one for one in judged if one.verdict in ("within", "full prefill")]
    unclear = [one for one in judged if one.verdict == "not told" and one.reuses]
    if any(one.reuses for one in within) or not unclear:
        fastest = min(within, key=lambda one: one.ttft)
        if fastest.reuses:
            return fastest, True, f"the fastest method within {points} of {against}"
        slower = any(one.reuses for one in within)
        return fastest, True, "no method that reuses is " + ("faster" if slower else f"within {points} of {against}")
    needed = fewest_questions(margin)
    best = min(unclear, key=lambda one: (one.loss, one.ttft))
    if questions < needed:
        why = f"{questions} questions cannot tell a difference of {points}, which takes {needed} or more"
    else:
        why = f"over {questions} questions no method that reuses is clearly within {points} of {against}"
    return best, False, f"{why}; of those that may be, the one of best quality"
