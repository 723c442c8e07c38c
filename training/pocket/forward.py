"""The model's forward pass over its own modules, dense and in batches: equal to transformers', several times faster."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu


def _norm(x: Tensor, norm: Any) -> Tensor:
    return rms_norm(x, (x.shape[-1],), norm.weight.to(x.dtype), norm.variance_epsilon)


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention, out (B, H, T, D); in float32 on a CPU, where that is several times faster than bfloat16."""
    if query.device.type == "cpu":
        with torch.autocast("cpu", enabled=False):
            return scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Interleaved pairs, over the first channels: x (B, H, T, D), cos and sin (B, 1, T, rotary)."""
    size = cos.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    crossed = torch.stack((-turned[..., 1::2], turned[..., 0::2]), dim=-1).flatten(-2)
    return torch.cat((turned * cos + crossed * sin, rest), dim=-1)


def _decoder_layer(layer: Any, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
    attention = layer.self_attn
    batch, rows, _ = x.shape
    h = _norm(x, layer.input_layernorm)
    heads = [
        projection(h).view(batch, rows, -1, attention.head_dim).transpose(1, 2)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    ]
    query, key = (_rotate_pairs(heads[index], cos, sin).float() for index in (0, 1))
    groups = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(groups, dim=1) for part in (key, heads[2].float()))
    out = _attend(query, key, value, mask)
    out = attention.o_proj(out.transpose(1, 2).reshape(batch, rows, -1))
    x = x + _norm(out, layer.post_self_attn_layernorm)
    gate, up = layer.mlp.gate_up_proj(_norm(x, layer.post_attention_layernorm)).chunk(2, dim=-1)
    return x + _norm(layer.mlp.down_proj(up * silu(gate)), layer.post_mlp_layernorm)


def compile_layers() -> None:
    """Fuse what layers do beside their matrix products, most of their time on a CPU; needs a C++ compiler there."""
    global _decoder_layer, _vision_block
    torch._dynamo.config.cache_size_limit = 64  # one program serves all lengths, but not all combinations of dtypes
    _decoder_layer = torch.compile(_decoder_layer, dynamic=True)
    _vision_block = torch.compile(_vision_block, dynamic=True)


def decode_rows(stack: Any, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
    """Hidden states (B, T, C) after all layers; cos and sin (B, T, rotary), mask (B, 1, T, T), added to scores."""
    cos, sin = cos[:, None], sin[:, None]
    for layer in stack.layers:
        x = _decoder_layer(layer, x, cos, sin, mask)
    return _norm(x, stack.norm)


def patches(images: Tensor, size: int = 14, merge: int = 2) -> Tensor:
    """Grey images (N, H, W), 0 to 255, as flat patches (N, P, size²) in the processor's order, unnormalised."""
    count, height, width = images.shape
    block = size * merge
    cut = images.view(count, height // block, merge, size, width // block, merge, size)
    return cut.permute(0, 1, 4, 2, 5, 3, 6).reshape(count, -1, size * size)


def grid(height: int, width: int, merge: int = 2) -> Tensor:
    """Row and column (P, 2) of every patch of an image of height × width patches, in the processor's order."""
    rows = torch.arange(height).view(height // merge, 1, merge, 1).expand(-1, width // merge, -1, merge)
    columns = torch.arange(width).view(1, width // merge, 1, merge).expand(height // merge, -1, merge, -1)
    return torch.stack((rows.flatten(), columns.flatten()), dim=-1)


def places(visual: Any, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the vision tower adds for a page of height × width patches: embedding (P, C), cosines, sines (P, D)."""
    device = visual.patch_embed.proj.weight.device
    where = grid(height, width).to(device)
    cos, sin = visual.rotary_pos_emb(where, where)
    blank = torch.zeros(len(where), visual.embeddings.embed_dim, device=device)
    shape = torch.tensor([[1, height, width]], device=device)
    embedding = visual.embeddings(blank, [len(where)], shape, where[:, 0], where[:, 1])
    return embedding, cos, sin


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _vision_block(block: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    count, rows, width = x.shape
    heads = block.attn.qkv(_norm(x, block.norm1)).view(count, rows, 3, block.attn.num_heads, -1)
    query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
    query, key = (_rotate_halves(part, cos, sin).float() for part in (query, key))
    out = _attend(query, key, value.float())
    x = x + block.attn.proj(out.transpose(1, 2).reshape(count, rows, width))
    h = _norm(x, block.norm2)
    return x + block.mlp.down_proj(silu(block.mlp.gate_proj(h)) * block.mlp.up_proj(h))


def see(visual: Any, cut: Tensor, embedding: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Visual tokens (N, P / 4, C) of grey pages of one size, as normalised patches (N, P, size²)."""
    projection = visual.patch_embed.proj
    # A grey page has the same value in every channel and frame: one sum of the weights does.
    weight = projection.weight.sum((1, 2)).flatten(1)
    x = _norm(torch.nn.functional.linear(cut, weight, projection.bias), visual.post_conv_layernorm) + embedding
    for block in visual.blocks:
        x = _vision_block(block, x, cos, sin)
    x = _norm(x, visual.post_layernorm)
    count, rows, width = x.shape
    down = visual.downsample
    merged = x.view(count, rows // 4, 4, width).transpose(2, 3).reshape(count, rows // 4, 4 * width)
    x = torch.nn.functional.linear(merged, down.weight.flatten(1), down.bias)
    return visual.merger(x)


def seen_mask(branch: Tensor) -> Tensor:
    """Mask (B, 1, T, T), added to scores, from branches (B, T): all see branch 0, the context, and their own."""
    rows = torch.arange(branch.shape[1], device=branch.device)
    same = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
    seen = (same & (rows[None, :] <= rows[:, None]))[:, None]
    return torch.zeros(seen.shape, device=branch.device).masked_fill(~seen, -1e4)


def rotary(stack: Any, positions: Tensor) -> tuple[Tensor, Tensor]:
    """The model's cosines and sines (B, T, rotary) for positions (3, B, T)."""
    cos, sin = stack.rotary_emb(torch.zeros(1, device=positions.device), positions)
    return cos, sin


def embed(stack: Any, ids: Tensor, image: Tensor, features: Sequence[Tensor]) -> Tensor:
    """Rows (B, T, C) of ids; where `image` (B, T) is true, visual tokens (each (N, P, C)) in order."""
    x = stack.embed_tokens(ids)
    if not features:
        return x
    return x.masked_scatter(image[..., None], torch.cat([part.flatten(0, 1) for part in features]).to(x.dtype))
