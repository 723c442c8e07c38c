"""KV gradient checkpointing: of each of the writer's layers only its input and its keys and values are kept (SemPIC).

Everything else is computed again in the backward pass. By then the reader has run, with the writer's adapter off: the
recomputation must switch it on again, or the gradients are those of another model.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from kvbind.models import Backbone, Context, Inputs, Pass, Rows


def read_checkpointed(backbone: Backbone, context: Context, inputs: Inputs, rows: Rows, positions: Tensor) -> Tensor:
    """Fill all rows of an empty context, as `steps.read.read` does, keeping little for the backward pass.

    `inputs` (B, R, C) at `positions` (A, B, R); hidden states (B, R, C).
    """
    rotary = backbone.rotary(inputs.x, positions)
    adapter = backbone.adapters.active

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), backbone.adapter(adapter)

    x = inputs.x
    for index in range(backbone.shape[0]):
        layer = partial(_layer, backbone, index, inputs.deep, rows, rotary)
        x, context.keys[index], context.values[index] = checkpoint(layer, x, use_reentrant=False, context_fn=contexts)
    return x


def _layer(
    backbone: Backbone, index: int, deep: Sequence[Tensor], rows: Rows, rotary: tuple[Tensor, Tensor], x: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    caught = _Caught()
    inputs = Inputs(x, tuple(deep))
    x = backbone.layer(index, inputs, cast(Context, caught), rows, rotary, Pass(causal=True)).x
    return x, caught.keys, caught.values


class _Caught:
    """A context of one layer and no buffer: the keys and values of a pass over all rows are all there are."""

    keys: Tensor
    values: Tensor

    def filler(self, _: Rows) -> "_Caught":
        return self

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.keys, self.values = keys, values
        return keys, values
