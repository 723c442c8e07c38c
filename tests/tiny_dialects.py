"""Special tokens and chat template of each family of tiny models."""

from dataclasses import dataclass

import tiny_templates as templates


@dataclass(frozen=True)
class Dialect:
    """Special tokens and chat template of a family; `stops` are the ends of an answer, `eos` the first of them."""

    template: str
    specials: tuple[str, ...]
    stops: tuple[str, ...]
    pad: str
    bos: str | None = None
    prepends_bos: bool = False
    plain: tuple[str, ...] = ()  # added tokens that decoding keeps
    tokenizer_class: str = "TokenizersBackend"


def _qwen(template: str, *specials: str, plain: tuple[str, ...] = ()) -> Dialect:
    chatml = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return Dialect(
        template,
        (*chatml, *specials),
        stops=("<|im_end|>", "<|endoftext|>"),
        pad="<|endoftext|>",
        plain=plain,
        tokenizer_class="Qwen2Tokenizer",
    )


LLAMA_CHAT = Dialect(
    templates.LLAMA,
    ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    stops=("<|eot_id|>", "<|end_of_text|>"),
    pad="<|end_of_text|>",
    bos="<|begin_of_text|>",
    prepends_bos=True,
)
MISTRAL_CHAT = Dialect(
    templates.MISTRAL,
    ("<s>", "</s>", "[INST]", "[/INST]"),
    stops=("</s>",),
    pad="</s>",
    bos="<s>",
    prepends_bos=True,
)
QWEN2_CHAT = _qwen(templates.QWEN2)
QWEN3_CHAT = _qwen(templates.QWEN3, plain=("<think>", "</think>"))
VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
QWEN2_VL_CHAT = _qwen(templates.QWEN2_VL, *VISION_TOKENS)
QWEN3_VL_CHAT = _qwen(templates.QWEN3_VL, *VISION_TOKENS)
LLAVA_CHAT = _qwen(templates.LLAVA, "<image>", "<video>")
GLM_ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>")
GLM_IMAGE = ("<|begin_of_image|>", "<|end_of_image|>", "<|image|>")
GLM_VIDEO = ("<|begin_of_video|>", "<|end_of_video|>", "<|video|>")
GLM_CHAT = Dialect(
    templates.GLM,
    ("<|endoftext|>", "[gMASK]", "<sop>", *GLM_ROLES, *GLM_IMAGE, *GLM_VIDEO),
    stops=("<|endoftext|>", "<|user|>", "<|observation|>"),
    pad="<|endoftext|>",
)
PADDLE_IMAGE = ("<|IMAGE_START|>", "<|IMAGE_END|>", "<|IMAGE_PLACEHOLDER|>")
PADDLE_CHAT = Dialect(
    templates.PADDLE,
    ("<unk>", "<|begin_of_sentence|>", "</s>", *PADDLE_IMAGE, "<|video_pad|>"),
    stops=("</s>",),
    pad="<unk>",
    bos="<|begin_of_sentence|>",
)
