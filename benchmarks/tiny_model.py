"""Small random models of the families in reproduce.md: real architectures, whose answers mean nothing.

python benchmarks/tiny_model.py FOLDER FAMILY      writes an ordinary model folder that `kvbind` loads
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from random_glyph import make_tokenizer, save, save_glyph
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

SPECIAL = ["<|im_end|>", "<|im_start|>"]
IMAGES = ["<image>", "<video>"]
CHATML = """{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content is string %}{{ m.content }}{% else %}{% for item in m.content %}{{ item.text }}{% endfor %}{% endif %}\
<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# As LLaVA-OneVision's own: images first, then the text.
LLAVA = """{% for m in messages %}<|im_start|>{{ m.role }} {% if m.content is string %}{{ m.content }}{% else %}\
{% for item in m.content if item.type == 'image' %}<image>{% endfor %}
{% for item in m.content if item.type == 'text' %}{{ item.text }}{% endfor %}{% endif %}<|im_end|>\
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PINPOINTS = [[84, 84], [84, 168], [168, 84], [168, 168]]


def _text(**more: Any) -> dict[str, Any]:
    return {
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 1024,
        "max_position_embeddings": 32768,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        **more,
    }


def _save_text(kind: str, folder: Path) -> None:
    tokenizer = make_tokenizer(SPECIAL, CHATML)
    config = AutoConfig.for_model(kind, **_text(eos_token_id=tokenizer.eos_token_id, bos_token_id=None))
    save(AutoModelForCausalLM.from_config(config), tokenizer, None, folder)


def _save_llava(folder: Path) -> None:
    tokenizer = make_tokenizer([*SPECIAL, *IMAGES], LLAVA)
    image, video = (tokenizer.convert_tokens_to_ids(token) for token in IMAGES)
    eyes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2}
    eyes |= {"model_type": "siglip_vision_model", "image_size": 84, "patch_size": 14, "vision_use_head": False}
    config = AutoConfig.for_model(
        "llava_onevision",
        text_config=_text(model_type="qwen2", eos_token_id=tokenizer.eos_token_id, bos_token_id=None),
        vision_config=eyes,
        image_token_id=image,
        video_token_id=video,
        image_grid_pinpoints=PINPOINTS,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    images = {
        "image_processor_type": "LlavaOnevisionImageProcessor",
        "size": {"height": 84, "width": 84},
        "image_grid_pinpoints": PINPOINTS,
    }
    save(AutoModelForImageTextToText.from_config(config), tokenizer, images, folder)


FAMILIES: Mapping[str, Callable[[Path], None]] = {
    "glm4v": lambda folder: save_glyph("toy", folder),
    "llava_onevision": _save_llava,
    "llama": lambda folder: _save_text("llama", folder),
    "qwen3": lambda folder: _save_text("qwen3", folder),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("family", choices=FAMILIES)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    FAMILIES[arguments.family](arguments.folder)


if __name__ == "__main__":
    main()
