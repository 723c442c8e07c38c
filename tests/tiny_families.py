"""What the tiny models are, as data: one record per folder that `tiny.folder` can build.

Values named after a token (`image_token_id` and the like) hold the token's text here, and its id in the folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tiny_dialects import (
    GLM_CHAT,
    LLAMA_CHAT,
    LLAVA_CHAT,
    MISTRAL_CHAT,
    PADDLE_CHAT,
    QWEN2_CHAT,
    QWEN2_VL_CHAT,
    QWEN3_CHAT,
    QWEN3_VL_CHAT,
    Dialect,
)


@dataclass(frozen=True)
class Family:
    """One tiny model: its configuration, and that of its image processor if it sees."""

    model_type: str
    dialect: Dialect
    config: Mapping[str, Any] = field(default_factory=dict)
    images: Mapping[str, Any] | None = None


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}
QWEN_EYES = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "tie_word_embeddings": False,
}


def _rope(theta: float, rope_type: str = "default", **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": theta, "rope_type": rope_type, **more}}


def _scaled(rope_type: str, **more: Any) -> dict[str, Any]:
    return SMALL | _rope(10000.0, rope_type, factor=4.0, **more)


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
# From 4 to 256 image tokens: wide enough that test pages of two sizes keep two token counts.
PIXELS = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 256}
PATCHES = {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}
QWEN_VIT = {"depth": 3, "num_heads": 2, "patch_size": 14}
PINPOINTS = [[42, 42], [42, 84], [84, 42], [84, 84]]

TEXT_FAMILIES = {
    "llama": Family("llama", LLAMA_CHAT, SMALL | _rope(500000.0)),
    "llama-llama3": Family("llama", LLAMA_CHAT, _scaled("llama3", **LLAMA3)),
    "llama-linear": Family("llama", LLAMA_CHAT, _scaled("linear")),
    "llama-yarn": Family("llama", LLAMA_CHAT, _scaled("yarn", original_max_position_embeddings=512)),
    "mistral": Family("mistral", MISTRAL_CHAT, SMALL | _rope(1e6) | {"sliding_window": None}),
    "qwen2": Family("qwen2", QWEN2_CHAT, SMALL | _rope(1e6) | {"tie_word_embeddings": True}),
    "qwen3": Family("qwen3", QWEN3_CHAT, SMALL | _rope(1e6) | {"head_dim": 32}),
}

VISION_FAMILIES = {
    "glm4v": Family(
        "glm4v",
        GLM_CHAT,
        {
            "text_config": SMALL
            | {"hidden_size": 128}
            | _rope(10000.0, partial_rotary_factor=0.5, mrope_section=[2, 3, 3]),
            "vision_config": {
                "depth": 2,
                "hidden_size": 64,
                "num_heads": 2,
                "image_size": 112,
                "patch_size": 14,
                "out_hidden_size": 128,
                "intermediate_size": 96,
            },
            "image_token_id": "<|image|>",
            "video_token_id": "<|video|>",
            "image_start_token_id": "<|begin_of_image|>",
            "image_end_token_id": "<|end_of_image|>",
            "video_start_token_id": "<|begin_of_video|>",
            "video_end_token_id": "<|end_of_video|>",
            "tie_word_embeddings": False,
        },
        # This processor counts both frames of its two-frame patches.
        {"image_processor_type": "Glm4vImageProcessor", "size": {k: 2 * v for k, v in PIXELS.items()}, **PATCHES},
    ),
    "qwen2_vl": Family(
        "qwen2_vl",
        QWEN2_VL_CHAT,
        QWEN_EYES
        | {
            "text_config": SMALL | _rope(1e6, mrope_section=[2, 3, 3]),
            "vision_config": QWEN_VIT | {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2},
        },
        {
            "image_processor_type": "Qwen2VLImageProcessor",
            "min_pixels": PIXELS["shortest_edge"],
            "max_pixels": PIXELS["longest_edge"],
            **PATCHES,
        },
    ),
    "qwen2_5_vl": Family(
        "qwen2_5_vl",
        QWEN2_VL_CHAT,
        QWEN_EYES
        | {
            "text_config": SMALL | _rope(1e6, mrope_section=[2, 3, 3]),
            "vision_config": QWEN_VIT
            | {"hidden_size": 32, "out_hidden_size": 64, "intermediate_size": 48}
            | {"window_size": 56, "fullatt_block_indexes": [1]},
        },
        {"image_processor_type": "Qwen2VLImageProcessor", "size": PIXELS, **PATCHES},
    ),
    "qwen3_vl": Family(
        "qwen3_vl",
        QWEN3_VL_CHAT,
        QWEN_EYES
        | {
            "text_config": SMALL | {"head_dim": 32} | _rope(5e6, mrope_section=[6, 5, 5], mrope_interleaved=True),
            "vision_config": QWEN_VIT
            | {"hidden_size": 32, "out_hidden_size": 64, "intermediate_size": 48, "patch_size": 16}
            | {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]},
        },
        {"image_processor_type": "Qwen2VLImageProcessor", "size": PIXELS, **PATCHES, "patch_size": 16},
    ),
    "paddleocr_vl": Family(
        "paddleocr_vl",
        PADDLE_CHAT,
        {
            "text_config": SMALL | {"head_dim": 32, "use_bias": False} | _rope(500000.0, mrope_section=[4, 6, 6]),
            "vision_config": {
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "image_size": 112,
                "patch_size": 14,
            },
            "image_token_id": "<|IMAGE_PLACEHOLDER|>",
            "video_token_id": "<|video_pad|>",
            "vision_start_token_id": "<|IMAGE_START|>",
            "vision_end_token_id": "<|IMAGE_END|>",
            "tie_word_embeddings": False,
        },
        {
            "image_processor_type": "PaddleOCRVLImageProcessor",
            "size": PIXELS,
            **PATCHES,
            "temporal_patch_size": 1,
        },
    ),
    "llava_onevision": Family(
        "llava_onevision",
        LLAVA_CHAT,
        {
            "text_config": SMALL | {"model_type": "qwen2"} | _rope(1e6),
            "vision_config": {
                "model_type": "siglip_vision_model",
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 3,
                "num_attention_heads": 2,
                "image_size": 42,
                "patch_size": 14,
                "vision_use_head": False,
            },
            "image_token_id": "<image>",
            "video_token_id": "<video>",
            "image_grid_pinpoints": PINPOINTS,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "tie_word_embeddings": False,
        },
        {
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "size": {"height": 42, "width": 42},
            "image_grid_pinpoints": PINPOINTS,
        },
    ),
}

LONGROPE = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "original_max_position_embeddings": 512}
REFUSED_FAMILIES = {
    "llama-dynamic": Family("llama", LLAMA_CHAT, _scaled("dynamic")),
    "llama-longrope": Family("llama", LLAMA_CHAT, _scaled("longrope", **LONGROPE)),
    "mistral-sliding": Family("mistral", MISTRAL_CHAT, SMALL | _rope(1e6) | {"sliding_window": 16}),
    "qwen2-sliding": Family(
        "qwen2",
        QWEN2_CHAT,
        SMALL | _rope(1e6) | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
    ),
    "qwen3-dynamic": Family("qwen3", QWEN3_CHAT, _scaled("dynamic") | {"head_dim": 32}),
    "qwen3-next": Family(
        "qwen3_next",
        QWEN3_CHAT,
        SMALL
        | {"head_dim": 32, "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2}
        | {"moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 2}
        | {"linear_key_head_dim": 16, "linear_value_head_dim": 16},
    ),
    "gemma3": Family(
        "gemma3_text", QWEN2_CHAT, SMALL | {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16}
    ),
    "t5": Family("t5", QWEN2_CHAT, {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}),
    "gpt2": Family("gpt2", QWEN2_CHAT, {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),
}
