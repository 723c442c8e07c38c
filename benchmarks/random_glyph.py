"""Random models of GLM-4.1V's architecture, of several sizes: for timings, where what is answered means nothing.

python benchmarks/random_glyph.py small DIR      writes an ordinary model folder that `kvbind` loads
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import Glm4vConfig, Glm4vForConditionalGeneration, PreTrainedTokenizerFast
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil

from kvbind.models import Backbone, ChatTemplate
from kvbind.models.attention import NAME
from kvbind.models.families import FAMILIES

SPECIAL = [
    *("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>"),
    *("<|begin_of_image|>", "<|image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|video|>", "<|end_of_video|>"),
]
WORDS = (
    "the of and a to in was that it on had at with for as by from his they which ship storm harbour pier keeper lamp "
    "evening water wind north winter letter captain museum number street house after before under while light road"
).split()
TEMPLATE = """[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>
{% if m.content is string %}{{ m.content }}{% else %}{% for item in m.content %}\
{{ item.text if item.type == 'text' else '<|begin_of_image|><|image|><|end_of_image|>' }}\
{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>
{% endif %}"""
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}


def _text(hidden: int, layers: int, heads: int, inner: int, vocabulary: int, sections: list[int]) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "intermediate_size": inner,
        "vocab_size": vocabulary,
        "max_position_embeddings": 65536,
        "rope_parameters": {**ROPE, "mrope_section": sections},
    }


def _vision(hidden: int, depth: int, heads: int, inner: int, out: int) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "depth": depth,
        "num_heads": heads,
        "intermediate_size": inner,
        "out_hidden_size": out,
    }


SIZES = {
    "toy": (_text(256, 4, 4, 512, 4096, [4, 6, 6]), _vision(128, 2, 2, 256, 256)),
    "small": (_text(768, 12, 12, 2048, 4096, [4, 6, 6]), _vision(256, 4, 4, 512, 768)),
    # Glyph's and GLM-4.1V-9B's own numbers.
    "glyph": (_text(4096, 40, 32, 13696, 151552, [8, 12, 12]), _vision(1536, 24, 12, 13696, 4096)),
}


def make_tokenizer(special: Sequence[str] = SPECIAL, template: str = TEMPLATE) -> PreTrainedTokenizerFast:
    """Byte-level BPE over WORDS: about four characters a token, as a real vocabulary has over English.

    The first of the special tokens ends an answer.
    """
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=alphabet)
    core.train_from_iterator([" " + " ".join(WORDS)], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=special[0], extra_special_tokens=list(special[1:]), chat_template=template
    )


def build(size: str, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Backbone:
    """A random model, its weights made on the device."""
    tokenizer = make_tokenizer()
    ids = {
        "image_token_id": "<|image|>",
        "video_token_id": "<|video|>",
        "image_start_token_id": "<|begin_of_image|>",
        "image_end_token_id": "<|end_of_image|>",
        "video_start_token_id": "<|begin_of_video|>",
        "video_end_token_id": "<|end_of_video|>",
    }
    text, vision = SIZES[size]
    config = Glm4vConfig(
        text_config={**text, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.eos_token_id},
        vision_config=vision,
        **{name: tokenizer.convert_tokens_to_ids(token) for name, token in ids.items()},
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = Glm4vForConditionalGeneration._from_config(config, attn_implementation=NAME, dtype=dtype)
    finally:
        torch.set_default_dtype(before)
    model = model.to(device).eval().requires_grad_(False)
    chat = ChatTemplate(tokenizer, TEMPLATE, "<|image|>", {})
    return Backbone(model, FAMILIES["glm4v"], tokenizer, chat, Glm4vImageProcessorPil())


def save(model: Any, tokenizer: PreTrainedTokenizerFast, images: dict[str, Any] | None, folder: Path) -> None:
    """Write a model folder; `images` configures its image processor, if it has one."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if images:
        (folder / "preprocessor_config.json").write_text(json.dumps(images, indent=2, default=str))
    print(f"wrote {folder}")


def save_glyph(size: str, folder: Path) -> None:
    backbone = build(size)
    images = {**backbone.image_processor.to_dict(), "image_processor_type": "Glm4vImageProcessor"}
    save(backbone.model, backbone.tokenizer, images, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    save_glyph(arguments.size, arguments.folder)


if __name__ == "__main__":
    main()
