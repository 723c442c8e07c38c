"""The request's one buffer: keys and values of every row, per layer."""

from typing import Any

import torch
from torch import Tensor

Rows = slice | Tensor


class Context:
    """Keys and values (B, H, T, D) per layer, filled row by row in any order.

    `size` rows are in use, `position` is the next free position. `keys[i]` and `values[i]` have room for more rows
    than `size`; without gradients all layers lie in two `blocks` (L, B, H, capacity, D), keys and values.
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        capacity: int,
        *,
        batch: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.layers, self.heads, self.dim = shape
        self.batch, self.dtype, self.device = batch, dtype, torch.device(device)
        self.size = 0
        self.position = 0
        self.keys, self.values, self.blocks = self._room(capacity)

    def _room(self, capacity: int) -> tuple[list[Tensor], list[Tensor], tuple[Tensor, Tensor] | None]:
        shape = (self.batch, self.heads, capacity, self.dim)

        def empty(*sizes: int) -> Tensor:
            return torch.empty(sizes, dtype=self.dtype, device=self.device)

        if torch.is_grad_enabled():
            # Views of one block share a version counter, and autograd would refuse the later layers' writes.
            return [empty(*shape) for _ in range(self.layers)], [empty(*shape) for _ in range(self.layers)], None
        keys, values = empty(self.layers, *shape), empty(self.layers, *shape)
        return list(keys.unbind()), list(values.unbind()), (keys, values)

    @property
    def capacity(self) -> int:
        """Rows there is room for."""
        return self.keys[0].shape[2]

    def extend(self, rows: int) -> slice:
        """Take `rows` more rows into use, growing the buffers if need be, and return them."""
        start, self.size = self.size, self.size + rows
        if self.size > self.capacity:
            self._grow(max(self.size, 2 * self.capacity), start)
        return slice(start, self.size)

    def _grow(self, capacity: int, used: int) -> None:
        before = self.keys + self.values
        self.keys, self.values, self.blocks = self._room(capacity)
        for old, new in zip(before, self.keys + self.values, strict=True):
            new[:, :, :used] = old[:, :, :used]

    def truncate(self, size: int, position: int) -> None:
        """Give back every row from `size` on."""
        self.size, self.position = size, position

    def fill(self, layer: int, rows: Rows, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys, values (B, H, R, D) of some rows of one layer; the whole layer (B, H, size, D) comes back."""
        self.keys[layer][:, :, rows] = keys
        self.values[layer][:, :, rows] = values
        return self.keys[layer][:, :, : self.size], self.values[layer][:, :, : self.size]

    def filler(self, rows: Rows) -> "Filler":
        """What a decoder layer takes for its cache: updating it fills these rows."""
        return Filler(self, rows)


class Filler:
    """A cache, as a transformers decoder layer sees it, that fills given rows of a context."""

    def __init__(self, context: Context, rows: Rows) -> None:
        self.context, self.rows = context, rows

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Fill this pass's rows and return all rows in use."""
        return self.context.fill(layer_idx, self.rows, keys, values)
