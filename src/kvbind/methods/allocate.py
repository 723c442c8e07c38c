"""Which of the retrieved documents get the high resolution."""

import math
from collections.abc import Sequence
from itertools import accumulate

from kvbind.errors import MethodError

# Shares are quotients of rounded sums, so a share that equals alpha on paper may lie a few ulps below it.
TOLERANCE = 1e-12


def cumulative(scores: Sequence[float], *, alpha: float = 0.65, budget: int = 4) -> frozenset[int]:
    """Indices of the documents to promote: QV-PIC's cumulative relevance rule.

    `scores` are cosines in source order; negative ones count as zero. The best documents are taken until their
    share of the positive relevance reaches `alpha` (within 1e-12), at least one and at most `budget`; ties
    go by source order. Without a positive score the single best is promoted. Raises `MethodError` for
    `alpha` outside 0 to 1, a negative `budget`, and scores that are not finite.
    """
    if not 0 <= alpha <= 1:
        raise MethodError(f"alpha={alpha} is not a share: give a number from 0 to 1")
    if budget < 0:
        raise MethodError(
            f"budget={budget} is negative: give the largest number of documents to promote, or 0 for none"
        )
    for index, score in enumerate(scores):
        if not math.isfinite(score):
            raise MethodError(
                f"score {index} is {score}: relevance scores must be finite, check the embedder's vectors"
            )
    order = sorted(range(len(scores)), key=lambda index: -scores[index])  # stable: ties stay in source order
    return frozenset(order[: min(budget, _needed([max(scores[index], 0.0) for index in order], alpha))])


def _needed(descending: Sequence[float], alpha: float) -> int:
    """How many of the leading scores hold the share `alpha` of their sum; 1 if the sum is zero."""
    sums = list(accumulate(descending))
    # The last sum is also the total, so the final share is exactly 1 and the search cannot run past the end.
    return next((k for k, held in enumerate(sums, 1) if held >= (alpha - TOLERANCE) * sums[-1]), 1)
