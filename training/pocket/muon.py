"""Muon for the matrices inside the layers: momentum, orthogonalised by Newton and Schulz, in stacks of a shape."""

from collections.abc import Sequence

import torch
from torch import Tensor

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_STEPS = 5


def orthogonal(stack: Tensor) -> Tensor:
    """The nearest matrices with singular values about 1, for a stack (N, m, n) with m ≤ n."""
    a, b, c = _COEFFICIENTS
    x = stack.bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_STEPS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.float()


class Muon(torch.optim.Optimizer):
    """Updates matrices; each comes with the number of square-ish blocks of rows it is cut into (fused projections),
    and with its share of the learning rate.
    """

    def __init__(
        self, matrices: Sequence[tuple[Tensor, int, float]], lr: float, momentum: float = 0.95, decay: float = 0.02
    ):
        super().__init__([matrix for matrix, _, _ in matrices], {"lr": lr, "momentum": momentum, "decay": decay})
        self.cuts = [(parts, share) for _, parts, share in matrices]

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        options = self.param_groups[0]
        blocks: dict[tuple[int, int], list[tuple[Tensor, Tensor, float]]] = {}
        for matrix, (parts, share) in zip(options["params"], self.cuts, strict=True):
            if matrix.grad is None:
                continue
            state = self.state[matrix]
            held = state.setdefault("momentum", torch.zeros_like(matrix))
            held.lerp_(matrix.grad, 1 - options["momentum"])
            update = matrix.grad.lerp(held, options["momentum"])
            for block, change in zip(matrix.chunk(parts), update.chunk(parts), strict=True):
                if block.shape[0] > block.shape[1]:
                    block, change = block.mT, change.mT
                blocks.setdefault(tuple(block.shape), []).append((block, change, share * options["lr"]))
        for shape, pairs in blocks.items():
            made = orthogonal(torch.stack([change for _, change, _ in pairs]))
            for (block, _, lr), change in zip(pairs, made, strict=True):
                block.mul_(1 - lr * options["decay"])
                block.add_(change, alpha=-lr * 0.2 * max(shape) ** 0.5)
