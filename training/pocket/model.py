"""The pocket reader: GLM-4.1V's architecture, small; its tokenizer, chat template, processor and card."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
from transformers import Glm4vConfig, Glm4vForConditionalGeneration, PreTrainedTokenizerFast
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

from kvbind.models import Backbone, ChatTemplate
from kvbind.models.attention import NAME
from kvbind.models.families import FAMILIES
from kvbind.notes import make_context
from kvbind.types import PageSpec

CARD = PageSpec(420, 84, 0, 0, 0, font_size=12, line_height=16.8, crop_width=False, crop_last_page=False)
"""A whole number of visual tokens at 72 DPI (15 × 3) and at 120 (25 × 5), so that no page is ever resampled.

At 120 DPI a row of visual tokens is one line, so that they stand in the order of reading.
"""

DPIS = (72, 120)
VOCABULARY = 2048
SPECIAL = [
    *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
    *("<|begin_of_image|>", "<|image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|video|>", "<|end_of_video|>"),
]
TEMPLATE = """[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>
{% if m.content is string %}{{ m.content }}{% else %}{% for item in m.content %}\
{{ item.text if item.type == 'text' else '<|begin_of_image|><|image|><|end_of_image|>' }}\
{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""

# White is zero: blank paper then says nothing, and the vision tower learns glyphs many times sooner.
PROCESSOR: dict[str, Any] = {"image_mean": [1.0, 1.0, 1.0], "image_std": [0.4, 0.4, 0.4]}

TEXT: dict[str, Any] = {
    "hidden_size": 256,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "max_position_embeddings": 8192,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [4, 6, 6],
    },
}
VISION: dict[str, Any] = {
    "hidden_size": 192,
    "depth": 6,
    "num_heads": 3,
    "intermediate_size": 512,
    "out_hidden_size": 256,
    "image_size": 14 * 12,
}
SIZES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cpu": (TEXT, VISION),
    # For a GPU: 19.6 million parameters.
    "gpu": (
        {**TEXT, "hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6, "intermediate_size": 1024},
        {**VISION, "hidden_size": 256, "depth": 8, "num_heads": 4, "intermediate_size": 1024, "out_hidden_size": 384},
    ),
}


def train_tokenizer(english: str, notes: int = 6000) -> PreTrainedTokenizerFast:
    """Byte-level BPE over generated notes with their questions, and a text of ordinary English.

    Whatever begins with a capital is spelled letter by letter, as numbers are digit by digit: names are to be read, and
    no piece of several letters has to be put together from two visual tokens.
    """
    core = tokenizers.Tokenizer(models.BPE())
    words = Regex(r" ?\p{Lu}| \p{Ll}+|(?<!\p{L})\p{Ll}+|\p{L}| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    # An answer begins with a blank, so that its first word is the token that stands in the note; it is not shown.
    core.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    core.train_from_iterator(_corpus(english, notes), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|endoftext|>", extra_special_tokens=SPECIAL[1:], chat_template=TEMPLATE
    )


def _corpus(english: str, notes: int) -> Iterator[str]:
    yield from english.split("\n\n")
    for seed in range(notes):
        context = make_context(seed, notes=2, questions=2)
        yield from (note.text + "\n\n" for note in context.notes)
        yield from (question.text for question in context.questions)


def build(tokenizer: Any, size: str = "cpu", seed: int = 0) -> Glm4vForConditionalGeneration:
    """A random model in float32."""
    text, vision = SIZES[size]
    ids = {
        "image_token_id": "<|image|>",
        "video_token_id": "<|video|>",
        "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>",
        "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>",
    }
    stop = tokenizer.eos_token_id
    config = Glm4vConfig(
        text_config={**text, "vocab_size": VOCABULARY, "eos_token_id": stop, "pad_token_id": stop},
        vision_config=vision,
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in ids.items()},
    )
    torch.manual_seed(seed)
    model = Glm4vForConditionalGeneration._from_config(config, attn_implementation=NAME, dtype=torch.float32)
    model.generation_config.eos_token_id = [stop, tokenizer.convert_tokens_to_ids("<|user|>")]
    model.generation_config.pad_token_id = stop
    return model


def backbone(model: Any, tokenizer: Any) -> Backbone:
    """The model as kvbind's steps take it."""
    chat = ChatTemplate(tokenizer, TEMPLATE, "<|image|>", {})
    return Backbone(model, FAMILIES["glm4v"], tokenizer, chat, Glm4vImageProcessorPil(**PROCESSOR))


def export(model: Any, tokenizer: Any, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write an ordinary model folder that `kvbind` loads, and the card that it reads best."""
    copy = Glm4vForConditionalGeneration._from_config(model.config, attn_implementation=NAME, dtype=dtype)
    copy.load_state_dict(model.state_dict())
    copy.generation_config = model.generation_config
    copy.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    processor = Glm4vImageProcessorPil(**PROCESSOR).to_dict() | {"image_processor_type": "Glm4vImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=2, default=str))
    (folder / "kvbind.json").write_text(json.dumps({"page": asdict(CARD)}, indent=2))
