"""Who a model is, to the byte: what enters the key of every passage it compiles."""

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import xxhash
from torch import Tensor

from kvbind.models.adapters import base_state

# Names of a file or a release, not numbers that the model computes with.
_NOT_IDENTITY = ("transformers_version", "_name_or_path", "architectures", "dtype", "torch_dtype")


def model_facts(model: Any, tokenizer: Any, template: str, image_processor: Any) -> dict[str, Any]:
    """Digests of weights (without adapters), config, tokenizer, chat template and image processor; number format."""
    return {
        "weights": weights_digest(base_state(model)),
        "config": json_digest(_plain(model.config.to_dict())),
        "tokenizer": tokenizer_digest(tokenizer),
        "template": json_digest(template),
        "processor": json_digest(_plain(image_processor.to_dict())) if image_processor is not None else None,
        "dtype": str(model.dtype),
    }


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over every tensor's name, type, shape and the xxh3-128 of its bytes.

    The fast hash is enough here: it guards against other weights under the same name, not against somebody who
    builds weights to collide, and who could as well have built the answers.
    """
    once = {_place(name, tensor): name for name, tensor in sorted(tensors.items(), reverse=True)}  # tied weights once
    names = sorted(once.values())
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        digests = list(pool.map(lambda name: _tensor_digest(tensors[name]), names))
    return json_digest([[name, digest] for name, digest in zip(names, digests, strict=True)])


def _place(name: str, tensor: Tensor) -> tuple[Any, ...]:
    pointer = tensor.data_ptr() or name  # empty tensors and those without storage all lie at 0
    return pointer, tensor.dtype, tuple(tensor.shape), tensor.stride()


def tokenizer_digest(tokenizer: Any) -> str:
    """SHA-256 over the tokenizer's whole serialised state."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return hashlib.sha256(backend.to_str().encode()).hexdigest()
    return json_digest([tokenizer.get_vocab(), tokenizer.special_tokens_map])


def json_digest(value: Any) -> str:
    """SHA-256 over canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _tensor_digest(tensor: Tensor) -> str:
    flat = tensor.detach().cpu().contiguous()
    content = flat.reshape(-1).view(torch.uint8).numpy()
    return f"{flat.dtype}{tuple(flat.shape)}{xxhash.xxh3_128_hexdigest(content.data)}"


def _plain(config: Any) -> Any:
    if isinstance(config, Mapping):
        return {str(key): _plain(value) for key, value in config.items() if key not in _NOT_IDENTITY}
    if isinstance(config, list | tuple):
        return [_plain(value) for value in config]
    return config
