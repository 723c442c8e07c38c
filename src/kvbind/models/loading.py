"""From a folder or hub id to a backbone, refusing what would make reused keys and values wrong."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
)
from transformers.utils import cached_file, logging

from kvbind.errors import ModelError, UnsupportedModelError
from kvbind.models.attention import NAME, Pass, rows_blocks
from kvbind.models.backbone import Backbone, line
from kvbind.models.chat import ChatTemplate
from kvbind.models.families import FAMILIES, NESTED_TEXT, ROPE_TYPES, Family

TEMPLATE_OPTIONS: Mapping[str, Any] = {"enable_thinking": False, "date_string": "26 Jul 2024"}
PLAIN_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% if not loop.last %}\n{% endif %}{% endfor %}"
)


def load_backbone(
    source: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "auto",
    template_options: Mapping[str, Any] | None = None,
) -> Backbone:
    """Load a model folder or hub id; ModelError names what is missing, UnsupportedModelError what is wrong with it."""
    if _is_path(source) and not Path(source).expanduser().is_dir():
        raise ModelError(f"there is no model folder {source}: give a folder with a config.json, or a hub id")
    with _quiet():
        config = _load(AutoConfig, source, "a model folder (it needs a config.json) or a reachable hub id")
        family = check_supported(config)
        auto = AutoModelForImageTextToText if family.vision else AutoModelForCausalLM
        model = _load(auto, source, "whole model weights", dtype=_dtype(dtype), attn_implementation=NAME)
        tokenizer = _load(AutoTokenizer, source, "a tokenizer")
        processor = None
        if family.vision:
            processor = _load(getattr(transformers, family.vision.processor), source, "an image processor")
    model = _place(model, device)
    image_token = tokenizer.convert_ids_to_tokens(config.image_token_id) if family.vision else None
    options = {**TEMPLATE_OPTIONS, **(template_options or {})}
    template = find_template(source, tokenizer, plain=family.vision is None)
    chat = ChatTemplate(tokenizer, template, image_token, options)
    backbone = Backbone(model, family, tokenizer, chat, processor, stop_ids(model, tokenizer))
    check_rotation(backbone)
    return backbone


def check_supported(config: Any) -> Family:
    """The family of a config, or UnsupportedModelError: one line that says why reuse would be wrong."""
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{kind} is an encoder-decoder: passages are keys and values of a decoder alone")
    text = config.get_text_config()
    layers = set(getattr(text, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    if kind in FAMILIES and "sliding_attention" not in layers and getattr(text, "sliding_window", None) is not None:
        layers.add("sliding_attention")
    if layers:
        raise UnsupportedModelError(
            f"{kind} has {', '.join(sorted(layers))} layers: only full attention sees a passage wherever it stands"
        )
    if kind not in FAMILIES:
        raise UnsupportedModelError(f"{kind} is not a supported model type; supported are {', '.join(FAMILIES)}")
    nested = text.model_type
    if kind == "llava_onevision" and nested not in NESTED_TEXT:
        raise UnsupportedModelError(f"{kind} over {nested} is not supported; over {', '.join(NESTED_TEXT)} it is")
    rope = (getattr(text, "rope_parameters", None) or {}).get("rope_type")
    if rope not in ROPE_TYPES:
        raise UnsupportedModelError(
            f"{kind} has rope type {rope}: its rotation depends on the prompt's length or is unknown, so a stored key "
            f"cannot be moved; supported are {', '.join(ROPE_TYPES)}"
        )
    return FAMILIES[kind]


def check_rotation(backbone: Backbone) -> None:
    """Show on the loaded model itself that a stored key can be moved: layer 0's keys here and further on must agree."""
    rows, shift = 6, 1009
    ids = torch.arange(rows)[None].to(backbone.device) % backbone.stack.config.vocab_size
    keys = []
    with torch.no_grad():
        for origin in (3, 3 + shift):
            context = backbone.context(rows)
            place = context.extend(rows)
            inputs = backbone.embed(ids)
            positions = line(origin, rows, backbone.family.axes)[:, None].to(backbone.device)
            attention = Pass(rows_blocks(torch.arange(rows, device=backbone.device)))
            backbone.layer(0, inputs, context, place, backbone.rotary(inputs.x, positions), attention)
            keys.append(context.keys[0][:, :, :rows].float())
        moved = backbone.rope.rotate(keys[0], shift)
    error = float((moved - keys[1]).abs().max() / keys[1].abs().max().clamp_min(1e-6))
    if not error < (1e-3 if backbone.dtype == torch.float32 else 5e-2):
        raise UnsupportedModelError(
            f"{backbone.family.model_type}: a key moved by {shift} positions is off by {error:.1e} of its size; "
            "this model's rotation is not the one kvbind knows, so nothing is served from it"
        )


def find_template(source: str | Path, tokenizer: Any, *, plain: bool) -> str:
    """The model's chat template: the processor's, else the tokenizer's, else (`plain`) text alone after BOS."""
    for name in ("chat_template.jinja", "chat_template.json"):
        quiet = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
        path = cached_file(str(source), name, **quiet)
        if path is not None:
            text = Path(path).read_text(encoding="utf-8")
            return text if name.endswith("jinja") else str(json.loads(text)["chat_template"])
    template = tokenizer.chat_template
    if isinstance(template, dict):  # several by name, such as one for tools
        template = template.get("default")
    if isinstance(template, str):
        return template
    if plain and tokenizer.chat_template is None and tokenizer.bos_token is not None:
        return PLAIN_TEMPLATE
    raise ModelError(f"{source} has no chat template to go by: add a chat_template.jinja to the model's folder")


def stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end an answer: generation config's and the tokenizer's."""
    stops = model.generation_config.eos_token_id if model.generation_config else None
    listed = stops if isinstance(stops, list) else [stops]
    return frozenset(int(stop) for stop in [*listed, tokenizer.eos_token_id] if stop is not None)


def _is_path(source: str | Path) -> bool:
    """Whether a name can only be a path: hub ids are `name` or `owner/name`."""
    text = str(source)
    return isinstance(source, Path) or text.startswith((".", "~", "/")) or text.count("/") > 1 or "\\" in text


def _load(auto: Any, source: str | Path, need: str, **options: Any) -> Any:
    try:
        return auto.from_pretrained(source, **options)
    except UnsupportedModelError:
        raise
    except Exception as error:  # transformers raises nearly every type here
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"cannot load {source}: {need} is needed ({reason})") from error


def _place(model: Any, device: str | torch.device) -> Any:
    try:
        return model.to(device).eval().requires_grad_(False)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"cannot use device {device}: {str(error).splitlines()[0]}") from error


def _dtype(name: str | torch.dtype) -> str | torch.dtype:
    if isinstance(name, torch.dtype) or name == "auto":
        return name
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ModelError(f"unknown number format {name}: use auto, float32, bfloat16 or float16")
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars, and no notices about image-processor backends: ours is chosen on purpose."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
