"""The language model as the steps need it; with its siblings here, the only code that touches transformers."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from kvbind.errors import ModelError
from kvbind.models.adapters import Adapters
from kvbind.models.attention import Pass
from kvbind.models.chat import ChatTemplate
from kvbind.models.compat import with_cache
from kvbind.models.context import Context, Rows
from kvbind.models.families import Family, Features
from kvbind.models.identity import model_facts
from kvbind.models.tokens import TextEncoder
from kvbind.rope import Rope
from kvbind.types import Encoding

DynamicKV = DynamicCache


@dataclass(frozen=True)
class Inputs:
    """Rows on their way into the first layer: `x` (B, R, C), and `deep`, added after each of the first layers."""

    x: Tensor
    deep: tuple[Tensor, ...] = ()

    def only(self, kept: Tensor) -> "Inputs":
        """Some of the rows (n,), by their number in this pass."""
        return Inputs(self.x[:, kept], tuple(level[:, kept] for level in self.deep))


@dataclass(frozen=True)
class Backbone:
    """A loaded model of a supported family."""

    model: Any
    family: Family
    tokenizer: Any
    chat: ChatTemplate
    image_processor: Any = None
    stops: frozenset[int] = field(default_factory=frozenset)
    # An adapter that is on is on for every thread, so passes take turns.
    lock: Any = field(default_factory=threading.RLock, repr=False, compare=False)

    @cached_property
    def stack(self) -> Any:
        """The decoder stack: `embed_tokens`, `layers`, `norm`, `rotary_emb`."""
        return self.family.stack(self.model)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Everything about the model that a passage's numbers depend on."""
        return model_facts(self.model, self.tokenizer, self.chat.source, self.image_processor)

    @cached_property
    def rope(self) -> Rope:
        """How this model's keys rotate."""
        return Rope(self.stack.rotary_emb.inv_freq.detach().float(), self.family.pairing)

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        device: torch.device = self.stack.embed_tokens.weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The model's number format, and its passages'."""
        dtype: torch.dtype = self.stack.embed_tokens.weight.dtype
        return dtype

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """Layers, key-value heads, head dim."""
        attention, config = self.stack.layers[0].self_attn, self.stack.config
        return len(self.stack.layers), int(config.num_key_value_heads), int(attention.head_dim)

    @cached_property
    def layer_weights(self) -> int:
        """How many numbers the decoder layers multiply each row with."""
        return sum(weight.numel() for weight in self.stack.layers.parameters())

    @property
    def row_bytes(self) -> int:
        """Bytes of one row's keys and values in all layers."""
        layers, heads, dim = self.shape
        return 2 * layers * heads * dim * self.dtype.itemsize

    @property
    def window(self) -> int:
        """How many positions the model was made for."""
        return int(self.stack.config.max_position_embeddings)

    @property
    def reads_pages(self) -> bool:
        """Whether the model takes page images."""
        return self.family.vision is not None

    # Writers

    @cached_property
    def adapters(self) -> Adapters:
        """The LoRA adapters on the decoder stack; the vision tower has none."""
        return Adapters(self.stack)

    @contextmanager
    def adapter(self, name: str) -> Iterator[None]:
        """Switch an adapter on for the block ("" is the base model); no other thread computes meanwhile."""
        with self.lock, self.adapters.on(name):
            yield

    # Tokens and encodings

    @cached_property
    def encoder(self) -> TextEncoder:
        """How text becomes token ids."""
        return TextEncoder(self.tokenizer)

    def tokens(self, text: str, *, special: bool = False) -> list[int]:
        """Token ids of a text alone, without BOS: `special` where the chat template wrote it, not a user."""
        return self.encoder.template(text) if special else self.encoder.content(text)

    def encode_text(self, text: str) -> Encoding:
        """A text as the model will see it: ids (T,), consecutive positions (A, T)."""
        ids = torch.tensor(self.tokens(text), dtype=torch.long)
        return Encoding(ids, line(0, len(ids), self.family.axes), len(ids))

    def encode_page(self, image: Any) -> Encoding:
        """A page image as the model will see it, between the template's own marks, at the model's own positions."""
        vision = self.family.vision
        if vision is None:
            raise ModelError(f"{self.family.model_type} reads text only: choose a text method or a vision model")
        pixels = dict(self.image_processor(images=[image], return_tensors="pt"))
        token = int(self.model.config.image_token_id)
        wrapper = self.tokens(self.chat.wrapper, special=True)
        place = wrapper.index(token)
        count = vision.count(self.model, pixels)
        ids = torch.tensor(wrapper[:place] + [token] * count + wrapper[place + 1 :], dtype=torch.long)
        positions = vision.positions(self.model, ids, ids == token, pixels)
        return Encoding(ids, positions, int(positions.max()) + 1, pixels, ids == token)

    def is_image(self, ids: Tensor) -> Tensor:
        """True (T,) at the ids (T,) that stand for visual tokens."""
        token = self.model.config.image_token_id if self.reads_pages else -2
        return ids == int(token)

    # Forward passes

    def context(self, capacity: int, batch: int = 1) -> Context:
        """An empty context with room for `capacity` rows."""
        return Context(self.shape, capacity, batch=batch, dtype=self.dtype, device=self.device)

    def features(self, encodings: Sequence[Encoding]) -> Features | None:
        """What the vision tower makes of the encodings' page images, in order; None where there is none."""
        pages = [self._on_device(encoding.pixels) for encoding in encodings if encoding.pixels is not None]
        if not pages or self.family.vision is None:
            return None
        return self.family.vision.features(self.model, pages)

    def embed(self, ids: Tensor, image: Tensor | None = None, features: Features | None = None) -> Inputs:
        """Rows of ids (B, R); where `image` (B, R) is true, rows come from `features`, in order."""
        x = self.stack.embed_tokens(ids)  # (B, R, C)
        if image is None or features is None:
            return Inputs(x)
        x = x.masked_scatter(image[..., None], torch.cat(list(features.rows)).to(x))
        deep = tuple(
            torch.zeros_like(x).masked_scatter(image[..., None], torch.cat(list(level)).to(x))
            for level in features.deep
        )
        return Inputs(x, deep)

    def rotary(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The model's own cosines and sines for positions (A, B, R)."""
        cos, sin = self.stack.rotary_emb(x, positions if self.family.axes > 1 else positions[0])
        return cos, sin

    def layer(
        self,
        index: int,
        inputs: Inputs,
        context: Context,
        rows: Rows,
        rotary: tuple[Tensor, Tensor],
        attention: Pass,
    ) -> Inputs:
        """One decoder layer over some rows: fills their keys and values, and returns what the next layer takes."""
        with self.lock:
            x = self.stack.layers[index](
                inputs.x,
                attention_mask=None,
                position_embeddings=rotary,
                kvbind_pass=attention,
                **with_cache(context.filler(rows)),
            )
        x = x[0] if isinstance(x, tuple) else x
        if index < len(inputs.deep):
            x = x + inputs.deep[index]
        return Inputs(x, inputs.deep)

    def scaling(self, index: int) -> float:
        """What a layer's scores are multiplied with before their softmax."""
        return float(self.stack.layers[index].self_attn.scaling)

    def values(self, index: int, x: Tensor) -> Tensor:
        """The values (B, H, R, D) that a layer would fill for hidden states (B, R, C), before it is run."""
        layer = self.stack.layers[index]
        with self.lock:
            values: Tensor = layer.self_attn.v_proj(layer.input_layernorm(x))
        _, heads, dim = self.shape
        return values.view(*x.shape[:2], heads, dim).transpose(1, 2)

    def logits(self, x: Tensor) -> Tensor:
        """Logits (B, R, V) of hidden states (B, R, C)."""
        logits: Tensor = self.model.lm_head(self.stack.norm(x))
        return logits

    def native(self, ids: Tensor, positions: Tensor, encodings: Sequence[Encoding] = ()) -> tuple[Tensor, DynamicCache]:
        """Full prefill by the model's own forward, visual encoding included: logits (V,) of the last row, its cache.

        `ids` (T,), `positions` (A, T); page images come from the encodings that have them, in order.
        """
        pages = [self._on_device(encoding.pixels) for encoding in encodings if encoding.pixels is not None]
        images = self.family.vision.native(pages) if pages and self.family.vision else {}
        cache = DynamicCache(config=self.stack.config)
        placed = positions[:, None] if self.family.axes > 1 else positions
        with self.lock:
            output = self.model(
                input_ids=ids[None].to(self.device),
                position_ids=placed.to(self.device),
                use_cache=True,
                logits_to_keep=1,
                **images,
                **with_cache(cache),
            )
        return output.logits[0, -1], cache

    def _on_device(self, pixels: Any) -> dict[str, Tensor]:
        return {
            name: value.to(self.device, self.dtype if value.is_floating_point() else None)
            for name, value in pixels.items()
            if isinstance(value, Tensor)
        }


def line(start: int, count: int, axes: int) -> Tensor:
    """Consecutive positions (A, count) of text from `start`."""
    return torch.arange(start, start + count).expand(axes, -1)
