import random
from fractions import Fraction

import pytest

from kvbind.errors import MethodError
from kvbind.methods.allocate import cumulative

TABLE = [
    # scores, alpha, budget, promoted
    ([0.5, 0.3, 0.2], 0.65, 4, {0, 1}),  # shares .5 .8
    ([0.2, 0.3, 0.5], 0.65, 4, {1, 2}),  # the ranking decides, not the place
    ([0.7, 0.2, 0.1], 0.65, 4, {0}),  # share .7
    ([0.1] * 10, 0.65, 4, {0, 1, 2, 3}),  # seven would be needed, the budget stops at four; ties by source order
    ([0.1] * 10, 0.65, 9, {0, 1, 2, 3, 4, 5, 6}),
    ([13.0, 7.0], 0.65, 4, {0}),  # the share is .65 exactly
    ([0.65, 0.35], 0.65, 4, {0}),
    ([12.9, 7.1], 0.65, 4, {0, 1}),  # the share is .645
    ([0.6, -0.9, 0.4], 0.65, 4, {0, 2}),  # a negative score adds nothing to the total
    ([0.6, -0.9, 0.4], 1.0, 4, {0, 2}),
    ([0.6, 0.0, 0.4, 0.0], 1.0, 4, {0, 2}),  # the share is 1 before the zeros
    ([0.3, 0.3, 0.3], 0.0, 4, {0}),  # at least one, k counts from 1
    ([0.3, 0.3, 0.3], 0.5, 4, {0, 1}),
    ([-0.3, -0.1, -0.2], 0.65, 4, {1}),  # no positive score: the single best, by the raw score
    ([-0.2, -0.1, -0.1], 0.65, 4, {1}),
    ([0.0, 0.0], 0.65, 4, {0}),
    ([-0.1, 0.0, -0.0], 1.0, 4, {1}),
    ([0.5, 0.5], 0.65, 1, {0}),
    ([0.5, 0.5], 0.65, 0, set()),
    ([-0.5, -0.5], 0.65, 0, set()),
    ([0.4], 0.65, 4, {0}),
    ([], 0.65, 4, set()),
]


@pytest.mark.parametrize(("scores", "alpha", "budget", "promoted"), TABLE)
def test_table(scores: list[float], alpha: float, budget: int, promoted: set[int]) -> None:
    assert cumulative(scores, alpha=alpha, budget=budget) == frozenset(promoted)


def test_published_defaults() -> None:
    assert cumulative([0.1] * 10) == cumulative([0.1] * 10, alpha=0.65, budget=4)
    assert cumulative([64.0, 36.0]) == {0, 1}
    assert cumulative([66.0, 34.0]) == {0}


@pytest.mark.parametrize("count", [3, 7, 10, 49, 1000])
def test_alpha_one_promotes_every_positive_score_in_spite_of_rounding(count: int) -> None:
    assert cumulative([0.1] * count, alpha=1.0, budget=2000) == frozenset(range(count))


def brute(scores: list[int], alpha: Fraction, budget: int) -> set[int]:
    """The rule word for word, in rational numbers, with the ranking by repeated search."""
    left, order = dict(enumerate(scores)), []
    while left:
        best = next(i for i in left if all(left[i] >= other for other in left.values()))
        order.append(best)
        del left[best]
    total = sum(max(score, 0) for score in scores)
    if not order or budget == 0:
        return set()
    if total == 0:
        return {order[0]}
    shares = {k: Fraction(sum(max(scores[i], 0) for i in order[:k]), total) for k in range(1, len(order) + 1)}
    return set(order[: min(budget, min(k for k, share in shares.items() if share >= alpha))])


def test_agrees_with_the_brute_force_twin() -> None:
    draw = random.Random(0)
    for _ in range(3000):
        scores = [draw.randint(-5, 9) for _ in range(draw.randint(0, 9))]  # small integers: ties and exact shares
        alpha, budget = Fraction(draw.randint(0, 20), 20), draw.randint(0, 6)
        floats = [score / 10 for score in scores]
        assert cumulative(floats, alpha=float(alpha), budget=budget) == brute(scores, alpha, budget), (scores, alpha)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_must_be_a_share(alpha: float) -> None:
    with pytest.raises(MethodError, match=r"alpha=.*from 0 to 1"):
        cumulative([0.5], alpha=alpha)


def test_budget_must_not_be_negative() -> None:
    with pytest.raises(MethodError, match="budget=-1 is negative"):
        cumulative([0.5], budget=-1)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), float("-inf")])
def test_scores_must_be_finite(score: float) -> None:
    with pytest.raises(MethodError, match="score 1 is"):
        cumulative([0.5, score])
