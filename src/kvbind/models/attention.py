"""Attention of some rows over a whole context, behind transformers' attention registry.

transformers' own `sdpa` is kept for every pass that is not ours (the native forward, the vision tower): it is
called unchanged. A pass of ours hands a `Pass` through the decoder layer.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "kvbind_sdpa"


@dataclass(frozen=True)
class Pass:
    """What one forward pass tells attention: `mask` (R, T), true where a row may look.

    Without a mask, rows are the whole context and see what stands before them (`causal`), or see everything. With
    `probe`, attention of the last row is noted there, averaged over heads: (B, T). With `queries`, the queries of
    every layer are: (B, Hq, R, D), rotated.
    """

    mask: Tensor | None
    causal: bool = False
    probe: list[Tensor] | None = None
    queries: list[Tensor] | None = None


def rows_mask(rows: Tensor, size: int) -> Tensor:
    """Boolean (R, T): every row sees the rows up to its own place, whatever order they were filled in."""
    return torch.arange(size, device=rows.device)[None, :] <= rows[:, None]


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    kvbind_pass: Pass | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of query (B, Hq, R, D) over key, value (B, H, T, D) as the pass says; (B, R, Hq, D)."""
    if kvbind_pass is None:
        output: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output
    scale = kwargs.get("scaling")
    if kvbind_pass.probe is not None:
        kvbind_pass.probe.append(last_row_attention(query, key, kvbind_pass.mask, scale))
    if kvbind_pass.queries is not None:
        kvbind_pass.queries.append(query)
    if kvbind_pass.causal:
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
    else:
        out = grouped_attention(query, key, value, kvbind_pass.mask, scale)
    return out.transpose(1, 2).contiguous(), None


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Grouped-query attention with the query heads of a group folded into rows: keys are never repeated."""
    batch, heads, rows, dim = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], groups * rows, dim)
    if mask is not None:
        mask = mask.expand(groups, -1, -1).reshape(groups * rows, -1)
    return scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale).reshape(query.shape)


def last_row_attention(query: Tensor, key: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """How the last row's attention divides over the rows it sees, averaged over heads: (B, T), float32."""
    batch, heads, _, dim = query.shape
    last = query[:, :, -1].reshape(batch, key.shape[1], heads // key.shape[1], dim).float()
    scores = last @ key.float().transpose(-1, -2) * (scale if scale is not None else dim**-0.5)  # (B, H, G, T)
    if mask is not None:
        scores = scores.masked_fill(~mask[-1], float("-inf"))
    return scores.softmax(-1).mean(dim=(1, 2))


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
