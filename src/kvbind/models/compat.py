"""The parts of transformers' interface that move between the releases kvbind supports (5.17 to 5.24)."""

import inspect
from typing import Any

from transformers.models.llama.modeling_llama import LlamaDecoderLayer

# The cache argument of a decoder layer and of a model: `past_key_values` until 5.2x, `cache` since.
CACHE_ARGUMENT = "cache" if "cache" in inspect.signature(LlamaDecoderLayer.forward).parameters else "past_key_values"


def with_cache(cache: Any) -> dict[str, Any]:
    """The keyword that hands `cache` to a decoder layer or a model."""
    return {CACHE_ARGUMENT: cache}
