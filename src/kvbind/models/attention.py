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


BLOCK = 512
"""Scattered rows are computed so many at a time: each block looks no further than its last row."""


@dataclass(frozen=True)
class Block:
    """Some rows of a pass, how many rows of the context they look at, and `mask` (R, T), true where a row may look."""

    rows: slice
    size: int
    mask: Tensor


@dataclass(frozen=True)
class Pass:
    """What one forward pass tells attention: its `blocks` of rows, in order.

    Without blocks, rows are the whole context and see what stands before them (`causal`), or see everything. With
    `probe`, attention of the last row over the rows up to it is noted there, averaged over heads: (B, T). With
    `queries`, the queries of every layer are: (B, Hq, R, D), rotated.
    """

    blocks: tuple[Block, ...] = ()
    causal: bool = False
    probe: list[Tensor] | None = None
    queries: list[Tensor] | None = None


def rows_blocks(rows: Tensor) -> tuple[Block, ...]:
    """Blocks for rows (R,) in ascending order: each sees the rows up to its own place, whenever they were filled."""
    blocks = []
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        size = int(part[-1]) + 1
        mask = torch.arange(size, device=rows.device)[None, :] <= part[:, None]  # (R, T)
        blocks.append(Block(slice(start, start + len(part)), size, mask))
    return tuple(blocks)


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
        size = kvbind_pass.blocks[-1].size if kvbind_pass.blocks else key.shape[2]
        kvbind_pass.probe.append(last_row_attention(query, key[:, :, :size], scale))
    if kvbind_pass.queries is not None:
        kvbind_pass.queries.append(query)
    if kvbind_pass.causal:
        out = scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
    elif kvbind_pass.blocks:
        out = torch.cat([_block_attention(query, key, value, block, scale) for block in kvbind_pass.blocks], dim=2)
    else:
        out = grouped_attention(query, key, value, None, scale)
    return out.transpose(1, 2).contiguous(), None


def _block_attention(query: Tensor, key: Tensor, value: Tensor, block: Block, scale: float | None) -> Tensor:
    seen = slice(block.size)
    return grouped_attention(query[:, :, block.rows], key[:, :, seen], value[:, :, seen], block.mask, scale)


def grouped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Grouped-query attention with the query heads of a group folded into rows: keys are never repeated."""
    batch, heads, rows, dim = query.shape
    groups = heads // key.shape[1]
    folded = query.reshape(batch, key.shape[1], groups * rows, dim)
    if mask is not None:
        mask = mask.expand(groups, -1, -1).reshape(groups * rows, -1)
    return scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scale).reshape(query.shape)


def last_row_attention(query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    """How the last row's attention divides over the rows it sees, those of `key`, averaged over heads: (B, T)."""
    batch, heads, _, dim = query.shape
    last = query[:, :, -1].reshape(batch, key.shape[1], heads // key.shape[1], dim).float()
    scores = last @ key.float().transpose(-1, -2) * (scale if scale is not None else dim**-0.5)  # (B, H, G, T)
    return scores.softmax(-1).mean(dim=(1, 2))


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
