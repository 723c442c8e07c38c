"""What differs between model families, as data and small functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvbind.rope import Pairing

Pixels = Mapping[str, Tensor]


@dataclass(frozen=True)
class Features:
    """Page images as the language model takes them.

    `rows` holds (T, C) per image. `deep` holds, per decoder layer from the first on, what is added to those rows
    after that layer (DeepStack), as (T, C) per image.
    """

    rows: Sequence[Tensor]
    deep: Sequence[Sequence[Tensor]] = ()

    def only(self, kept: Tensor) -> "Features":
        """Of one image, some rows: `kept` (T,) is true there."""
        return Features([rows[kept] for rows in self.rows], [[rows[kept] for rows in level] for level in self.deep])


def joined(images: Sequence[Features]) -> Features:
    """The features of several images, in order."""
    rows = [row for image in images for row in image.rows]
    deep = [[row for image in images for row in image.deep[level]] for level in range(len(images[0].deep))]
    return Features(rows, deep)


@dataclass(frozen=True)
class Vision:
    """How page images become rows: how many, with which features, at which positions, and the native arguments.

    `processor` names transformers' image processor: the Pillow one, since torchvision is no dependency.
    """

    processor: str
    count: Callable[[Any, Pixels], int]
    features: Callable[[Any, Sequence[Pixels]], Features]
    positions: Callable[[Any, Tensor, Tensor, Pixels], Tensor]
    native: Callable[[Sequence[Pixels]], dict[str, Tensor]]


@dataclass(frozen=True)
class Family:
    """A supported `model_type`: how its channels pair up, its position axes, and where its decoder stack is."""

    model_type: str
    pairing: Pairing
    axes: int = 1
    stack: Callable[[Any], Any] = lambda model: model.model
    vision: Vision | None = None


def _language_model(model: Any) -> Any:
    return model.model.language_model


def _grid_count(model: Any, pixels: Pixels) -> int:
    merge = int(model.config.vision_config.spatial_merge_size)
    return int(pixels["image_grid_thw"].prod()) // merge**2


def _grid_native(pages: Sequence[Pixels]) -> dict[str, Tensor]:
    names = ("pixel_values", "image_grid_thw")
    return {name: torch.cat([page[name] for page in pages]) for name in names}


def _grid_features(model: Any, pages: Sequence[Pixels]) -> Features:
    joined = _grid_native(pages)
    output = model.model.get_image_features(joined["pixel_values"], joined["image_grid_thw"], return_dict=True)
    return Features(output.pooler_output, getattr(output, "deepstack_features", None) or ())


def _grid_positions(model: Any, ids: Tensor, image: Tensor, pixels: Pixels) -> Tensor:
    # The model's own rule, as installed: a formula of ours could drift from it silently.
    positions, _ = model.model.get_rope_index(
        ids[None], mm_token_type_ids=image.int()[None], image_grid_thw=pixels["image_grid_thw"]
    )
    return positions[:, 0]  # type: ignore[no-any-return]  # (3, T)


def _tiles_count(model: Any, pixels: Pixels) -> int:
    vision = model.config.vision_config
    patches = (vision.image_size // vision.patch_size) ** 2
    tiles = torch.zeros(pixels["pixel_values"].shape[1], patches, 1)
    newline = torch.zeros(1)
    _, lengths = model.model.pack_image_features(
        [tiles], pixels["image_sizes"], newline, model.config.vision_aspect_ratio
    )
    return int(lengths[0])


def _tiles_native(pages: Sequence[Pixels]) -> dict[str, Tensor]:
    most = max(page["pixel_values"].shape[1] for page in pages)
    padded = [
        torch.nn.functional.pad(page["pixel_values"], (0, 0) * 3 + (0, most - page["pixel_values"].shape[1]))
        for page in pages
    ]
    return {
        "pixel_values": torch.cat(padded),
        "image_sizes": torch.cat([page["image_sizes"] for page in pages]),
        # One image per sample, so that a page is tiled in a joint prompt as it is alone.
        "batch_num_images": torch.ones(len(pages), dtype=torch.long),
    }


def _tiles_features(model: Any, pages: Sequence[Pixels]) -> Features:
    return Features(model.model.get_image_features(**_tiles_native(pages), return_dict=True).pooler_output)


def _line_positions(_model: Any, ids: Tensor, _image: Tensor, _pixels: Pixels) -> Tensor:
    return torch.arange(ids.shape[0])[None]  # (1, T)


def _grid(processor: str) -> Vision:
    """M-RoPE vision: one row per merged patch of the image's grid."""
    return Vision(processor, _grid_count, _grid_features, _grid_positions, _grid_native)


def _tiles(processor: str) -> Vision:
    """LLaVA's: an image as tiles of one size, rows at consecutive positions."""
    return Vision(processor, _tiles_count, _tiles_features, _line_positions, _tiles_native)


_QWEN = "Qwen2VLImageProcessorPil"

FAMILIES: Mapping[str, Family] = {
    family.model_type: family
    for family in (
        Family("llama", "half"),
        Family("mistral", "half"),
        Family("qwen2", "half"),
        Family("qwen3", "half"),
        Family("glm4v", "interleaved", 3, _language_model, _grid("Glm4vImageProcessorPil")),
        Family("qwen2_vl", "half", 3, _language_model, _grid(_QWEN)),
        Family("qwen2_5_vl", "half", 3, _language_model, _grid(_QWEN)),
        Family("qwen3_vl", "half", 3, _language_model, _grid(_QWEN)),
        Family("paddleocr_vl", "half", 3, _language_model, _grid("PaddleOCRVLImageProcessorPil")),
        Family("llava_onevision", "half", 1, _language_model, _tiles("LlavaOnevisionImageProcessorPil")),
    )
}

# What the decoder stack inside LLaVA-OneVision may be: plain stacks whose channels pair up as "half".
NESTED_TEXT = ("llama", "mistral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
