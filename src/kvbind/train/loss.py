"""What the student is to match: the teacher's distribution at every place of an answer."""

import torch
from torch import Tensor


def compress(logits: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor]:
    """A distribution's `top` likeliest tokens: ids (m, k), their log-probabilities, and the log of what remains (m,).

    With `top` of the whole vocabulary or more nothing remains, and the distribution is whole.
    """
    full = logits.float().log_softmax(-1)  # (m, V)
    values, ids = full.topk(min(top, full.shape[-1]), dim=-1)
    return ids, values, _rest(full, ids)


def divergence(student: Tensor, ids: Tensor, teacher: Tensor, rest: Tensor) -> Tensor:
    """KL(teacher ‖ student) at temperature 1 of student logits (m, V), per place: (m,).

    The teacher's likeliest tokens (m, k) are compared one by one, all others as one: at most the KL over the whole
    vocabulary, and zero where that is zero.
    """
    full = student.float().log_softmax(-1)  # (m, V)
    listed = (teacher.exp() * (teacher - full.gather(-1, ids))).sum(-1)
    if ids.shape[-1] == full.shape[-1]:
        return listed
    return listed + torch.where(rest.isfinite(), rest.exp() * (rest - _rest(full, ids)), 0.0)


def _rest(full: Tensor, ids: Tensor) -> Tensor:
    """Log of the probability of all tokens but `ids` (m, k), given log-probabilities (m, V)."""
    return full.scatter(-1, ids, float("-inf")).logsumexp(-1)
