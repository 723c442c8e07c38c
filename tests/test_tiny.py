from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import tiny

SENTENCE = "The keeper of the lighthouse wrote the names of the boats, the wind and the water into a book."
TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Who wrote?\n"},
    {"role": "assistant", "content": "The keeper."},
    {"role": "user", "content": [{"type": "text", "text": "When?"}]},
]
IMAGES = [{"type": "image"}, {"type": "text", "text": "Read."}, {"type": "image"}]
LLAMA_SYSTEM = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
    "Today Date: 26 Jul 2024\n\nBe brief.<|eot_id|>"
)
CHATML = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Who wrote?\n<|im_end|>\n"
    "<|im_start|>assistant\nThe keeper.<|im_end|>\n<|im_start|>user\nWhen?<|im_end|>\n<|im_start|>assistant\n"
)
RENDERED = {
    "llama": LLAMA_SYSTEM + "<|start_header_id|>user<|end_header_id|>\n\nWho wrote?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\nThe keeper.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nWhen?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST] Be brief.\n\n Who wrote?\n [/INST] The keeper.</s>[INST] When? [/INST]",
    "qwen2": CHATML,
    "qwen3": CHATML,
    "qwen2_vl": CHATML,
    "qwen3_vl": CHATML,
    "glm4v": "[gMASK]<sop><|system|>\nBe brief.<|user|>\n Who wrote?\n<|assistant|>\nThe keeper.<|user|>\nWhen?"
    "<|assistant|>\n",
    "paddleocr_vl": "<|begin_of_sentence|>Be brief.\nUser:  Who wrote?\n\nAssistant: The keeper.</s>User: When?\n"
    "Assistant: ",
    "llava_onevision": "<|im_start|>system \nBe brief.<|im_end|><|im_start|>user \n Who wrote?\n<|im_end|>"
    "<|im_start|>assistant \nThe keeper.<|im_end|><|im_start|>user \nWhen?<|im_end|><|im_start|>assistant\n",
}
QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
PADDLE_IMAGE = "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"
GLM_IMAGE = "<|begin_of_image|><|image|><|end_of_image|>"
PICTURED = {
    "glm4v": f"[gMASK]<sop><|user|>\n{GLM_IMAGE}Read.{GLM_IMAGE}<|assistant|>\n",
    "qwen2_vl": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    f"<|im_start|>user\n{QWEN_IMAGE}Read.{QWEN_IMAGE}<|im_end|>\n<|im_start|>assistant\n",
    "qwen3_vl": f"<|im_start|>user\n{QWEN_IMAGE}Read.{QWEN_IMAGE}<|im_end|>\n<|im_start|>assistant\n",
    "paddleocr_vl": f"<|begin_of_sentence|>User: {PADDLE_IMAGE}{PADDLE_IMAGE}Read.\nAssistant: ",
    "llava_onevision": "<|im_start|>user <image><image>\nRead.<|im_end|><|im_start|>assistant\n",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tmp_path_factory.mktemp("tiny")


def load(name: str, root: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    path = tiny.folder(name, root)
    auto = transformers.AutoModelForImageTextToText if name in tiny.VISION else transformers.AutoModelForCausalLM
    model = auto.from_pretrained(path, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(path)


def pictures(shade: int) -> list[Image.Image]:
    wide = Image.linear_gradient("L").resize((100, 60)).point(lambda level: level ^ shade)
    return [wide.convert("RGB"), Image.radial_gradient("L").resize((60, 130)).convert("RGB")]


def see(name: str, model: PreTrainedModel, root: Any, shade: int) -> tuple[dict[str, Tensor], list[int]]:
    kind = tiny.ALL[name].images["image_processor_type"] + "Pil"  # torchvision is not installed
    processor = getattr(transformers, kind).from_pretrained(tiny.folder(name, root))
    pixels = dict(processor(pictures(shade), return_tensors="pt"))
    with torch.no_grad():
        features = model.model.get_image_features(**pixels).pooler_output
    return pixels, [len(feature) for feature in features]


def picture_logits(name: str, root: Any, shade: int = 0) -> Tensor:
    model, tokenizer = load(name, root)
    pixels, counts = see(name, model, root, shade)
    image = model.config.image_token_id
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": IMAGES}], add_generation_prompt=True, tokenize=False
    )
    ids = tokenizer(prompt, add_special_tokens=False).input_ids
    left = iter(counts)
    spread = torch.tensor([[token for i in ids for token in ([i] * next(left) if i == image else [i])]])
    kinds = {} if name == "llava_onevision" else {"mm_token_type_ids": (spread == image).int()}
    with torch.no_grad():
        return model(input_ids=spread, **pixels, **kinds).logits[0]


def assert_lively(logits: Tensor) -> None:
    assert logits.isfinite().all()
    assert len(logits.argmax(-1).unique()) > 5
    assert 2 / logits.shape[-1] < logits.softmax(-1).amax(-1).median() < 0.9


@pytest.mark.parametrize("name", tiny.FAMILIES)
def test_text_gives_varied_logits_that_depend_on_what_came_before(name: str, root: Any) -> None:
    model, tokenizer = load(name, root)
    ids = tokenizer(SENTENCE, return_tensors="pt", add_special_tokens=False).input_ids
    changed = ids.clone()
    changed[0, 0] = ids[0, 1]
    with torch.no_grad():
        logits, other = model(input_ids=ids).logits[0], model(input_ids=changed).logits[0]
    assert_lively(logits)
    assert (logits[-1] - other[-1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", tiny.VISION)
def test_a_prompt_with_two_images_depends_on_their_pixels(name: str, root: Any) -> None:
    logits = picture_logits(name, root)
    assert_lively(logits)
    assert (logits[-1] - picture_logits(name, root, shade=96)[-1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", tiny.VISION)
def test_images_of_two_sizes_have_two_token_counts(name: str, root: Any) -> None:
    _, (wide, tall) = see(name, load(name, root)[0], root, shade=0)
    assert 6 <= wide <= 40
    assert 6 <= tall <= 60
    assert wide != tall


@pytest.mark.parametrize("name", RENDERED)
def test_chat_template_renders_the_family_format(name: str, root: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.folder(name, root))
    turns: list[dict[str, Any]] = TURNS
    if name in tiny.VISION:
        turns = [
            {**turn, "content": [{"type": "text", "text": turn["content"]}]}
            if isinstance(turn["content"], str)
            else turn
            for turn in TURNS
        ]
    assert tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False) == RENDERED[name]


@pytest.mark.parametrize("name", PICTURED)
def test_chat_template_places_images_as_the_family_does(name: str, root: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.folder(name, root))
    turns = [{"role": "user", "content": IMAGES}]
    assert tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False) == PICTURED[name]


def test_qwen3_thinks_only_when_allowed_and_forgets_old_thoughts(root: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.folder("qwen3", root))
    thought = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nYes."}
    turns = [{"role": "user", "content": "So?"}, thought, {"role": "user", "content": "Sure?"}]
    prompt = tokenizer.apply_chat_template(turns, add_generation_prompt=True, enable_thinking=False, tokenize=False)
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "Hm." not in prompt
    assert "Hm." in tokenizer.apply_chat_template(turns[:2], tokenize=False)


@pytest.mark.parametrize("name", tiny.FAMILIES)
def test_only_the_llama_kind_of_tokenizer_prepends_bos(name: str, root: Any) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.folder(name, root))
    ids = tokenizer(SENTENCE).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == SENTENCE
    assert (ids[0] == tokenizer.bos_token_id) == (name.split("-")[0] in {"llama", "mistral"})


@pytest.mark.parametrize("name", tiny.REFUSED)
def test_refused_folders_have_a_config_and_weights(name: str, root: Any) -> None:
    path = tiny.folder(name, root)
    assert transformers.AutoConfig.from_pretrained(path).model_type == tiny.ALL[name].model_type
    assert (path / "model.safetensors").exists()


def test_building_twice_gives_the_same_bytes(root: Any, tmp_path: Any) -> None:
    first, second = tiny.folder("glm4v", root), tiny.folder("glm4v", tmp_path)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()
    assert sum(path.stat().st_size for path in first.iterdir()) < 3e6
    assert [path.name for path in tmp_path.iterdir()] == ["glm4v"]
