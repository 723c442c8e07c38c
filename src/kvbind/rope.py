"""Moving a passage: one scalar rotation of its keys, whatever the family (QV-PIC, eq. 2).

All position axes of a passage move by the same shift, so ``R(p + s) k = R(s) R(p) k`` with one angle per
frequency for all rows: no M-RoPE sections are needed, and no attention scaling, which the stored key holds.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Pairing = Literal["half", "interleaved"]


@dataclass(frozen=True)
class Rope:
    """A model's own frequencies `inv_freq` (F,) and how channels pair up; channels past 2F do not rotate."""

    inv_freq: Tensor
    pairing: Pairing

    def rotate(self, keys: Tensor, shift: int, out: Tensor | None = None) -> Tensor:
        """Keys (..., T, D) moved by `shift` positions, computed in float32 and written to `out` if given."""
        if out is None:
            out = torch.empty_like(keys)
        if shift == 0:
            return out.copy_(keys)
        in_float32 = keys.dtype == out.dtype == torch.float32
        if in_float32 and not (torch.is_grad_enabled() and keys.requires_grad):
            return self._rotate_into(keys, shift, out)
        return out.copy_(self._rotated(keys.float(), shift))

    def _angles(self, shift: int, device: torch.device) -> tuple[Tensor, Tensor]:
        angle = shift * self.inv_freq.double()  # (F,) in float64: a large shift must not lose the phase
        return angle.cos().to(device, torch.float32), angle.sin().to(device, torch.float32)

    def _pair(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        half = self.inv_freq.shape[0]
        if self.pairing == "half":
            return x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2], x[..., 2 * half :]

    def _rotated(self, keys: Tensor, shift: int) -> Tensor:
        cos, sin = self._angles(shift, keys.device)
        a, b, rest = self._pair(keys)
        first, second = a * cos - b * sin, b * cos + a * sin  # (..., T, F) each
        if self.pairing == "half":
            return torch.cat((first, second, rest), dim=-1)
        return torch.cat((torch.stack((first, second), dim=-1).flatten(-2), rest), dim=-1)

    def _rotate_into(self, keys: Tensor, shift: int, out: Tensor) -> Tensor:
        cos, sin = self._angles(shift, keys.device)
        a, b, rest = self._pair(keys)
        first, second, still = self._pair(out)
        torch.mul(a, cos, out=first).addcmul_(b, sin, value=-1)
        torch.mul(b, cos, out=second).addcmul_(a, sin)
        still.copy_(rest)
        return out
