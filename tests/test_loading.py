"""What loads, what is refused, and who a model is."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conftest import Load
from kvbind import Engine
from kvbind.errors import KvbindError, ModelError, UnsupportedModelError
from kvbind.models import load_backbone
from kvbind.models.identity import model_facts, weights_digest
from kvbind.models.loading import PLAIN_TEMPLATE, check_rotation
from tiny import FAMILIES, REFUSED

REASONS = {
    "mistral-sliding": "sliding_attention",
    "qwen2-sliding": "sliding_attention",
    "gemma3": "sliding_attention",
    "qwen3-next": "linear_attention",
    "qwen3-dynamic": "rope type dynamic",
    "llama-dynamic": "rope type dynamic",
    "llama-longrope": "rope type longrope",
    "t5": "encoder-decoder",
    "gpt2": "not a supported model type",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_wrong_is_refused_in_one_line(models: Callable[[str], Path], name: str) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        load_backbone(models(name))
    assert REASONS[name] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_refusal_has_its_reason_tested() -> None:
    assert set(REASONS) == set(REFUSED)


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot load .*config\.json"):
        Engine.from_pretrained(tmp_path)


@pytest.mark.parametrize("source", ["./nope", "~/nope", "/no/such/model", "models/of/mine", Path("nope")])
def test_a_missing_folder_is_named(source: str | Path) -> None:
    with pytest.raises(ModelError, match="there is no model folder"):
        load_backbone(source)


def test_half_a_model_is_named(models: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models("qwen2"), tmp_path / "half")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(ModelError, match="whole model weights") as caught:
        load_backbone(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float12", "int8", "Tensor"])
def test_unknown_number_formats(models: Callable[[str], Path], dtype: str) -> None:
    with pytest.raises(ModelError, match="unknown number format"):
        load_backbone(models("qwen2"), dtype=dtype)


def test_unknown_devices(models: Callable[[str], Path]) -> None:
    with pytest.raises(ModelError, match="cannot use device abacus"):
        load_backbone(models("qwen2"), device="abacus")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_that_rotates_otherwise_is_refused(load: Load, name: str) -> None:
    """The check at load is no formality: pair the channels the other way and it refuses."""
    backbone = load(name)
    other = "half" if backbone.family.pairing == "interleaved" else "interleaved"
    wrong = dataclasses.replace(backbone, family=dataclasses.replace(backbone.family, pairing=other))
    with pytest.raises(UnsupportedModelError, match="off by"):
        check_rotation(wrong)


def test_without_a_chat_template_text_follows_bos(models: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models("llama"), tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    backbone = load_backbone(folder)
    assert backbone.chat.source == PLAIN_TEMPLATE
    assert backbone.tokens(backbone.chat.head("text"), special=True) == [backbone.tokenizer.bos_token_id]


def test_neither_template_nor_bos(models: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models("qwen2"), tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r"add a chat_template\.jinja"):
        load_backbone(folder)


def test_a_processors_template_comes_first(models: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models("qwen2_vl"), tmp_path / "older")
    source = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": source}))
    assert load_backbone(folder).chat.source == source


def test_identity_is_the_same_for_the_same_bytes(models: Callable[[str], Path], load: Load, tmp_path: Path) -> None:
    copy = shutil.copytree(models("glm4v"), tmp_path / "renamed")
    assert load_backbone(copy).facts == load("glm4v").facts


def test_every_part_of_a_model_is_in_its_identity(models: Callable[[str], Path], load: Load, tmp_path: Path) -> None:
    facts = load("glm4v").facts
    changes = {
        "config": ("config.json", '"rms_norm_eps": 1e-05', '"rms_norm_eps": 2e-05'),
        "template": ("chat_template.jinja", "[gMASK]", "[gMASK] "),
        "processor": ("preprocessor_config.json", '"merge_size": 2', '"merge_size": 2, "do_normalize": false'),
    }
    for part, (file, old, new) in changes.items():
        folder = shutil.copytree(models("glm4v"), tmp_path / part)
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))
        changed = load_backbone(folder).facts
        assert [name for name in facts if changed[name] != facts[name]] == [part]
    assert load("glm4v", "bfloat16").facts["dtype"] != facts["dtype"]


def test_one_bit_of_one_weight_is_in_the_identity(load: Load) -> None:
    weights = {name: tensor.clone() for name, tensor in load("qwen3").model.state_dict().items()}
    before = weights_digest(weights)
    assert weights_digest(dict(reversed(weights.items()))) == before
    name = next(iter(weights))
    weights[name].view(torch.int32).view(-1)[7] ^= 1
    assert weights_digest(weights) != before


def test_a_token_added_to_the_tokenizer_is_in_the_identity(models: Callable[[str], Path]) -> None:
    backbone = load_backbone(models("qwen3"))
    backbone.tokenizer.add_tokens(["lighthouse"])
    changed = model_facts(backbone.model, backbone.tokenizer, backbone.chat.source, None)
    assert changed["tokenizer"] != load_backbone(models("qwen3")).facts["tokenizer"]


def test_every_error_is_of_one_tree() -> None:
    import kvbind.errors as errors

    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert all(issubclass(error, KvbindError) for error in found)


def test_named_templates_take_the_default(models: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models("llama"), tmp_path / "named")
    source = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").unlink()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    named = [{"name": "default", "template": source}, {"name": "tool_use", "template": "tools"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": named}))
    assert load_backbone(folder).chat.source == source
    named = [{"name": "tool_use", "template": "tools"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": named}))
    with pytest.raises(ModelError, match="no chat template to go by"):
        load_backbone(folder)


def test_a_vision_model_needs_its_template(models: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(models("paddleocr_vl"), tmp_path / "bare")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r"add a chat_template\.jinja"):
        load_backbone(folder)


def test_weights_that_share_memory_are_told_apart() -> None:
    base = torch.arange(8.0)
    assert weights_digest({"a": base[:4], "b": base[:6]}) != weights_digest({"a": base[:4], "b": base[:7]})
    assert weights_digest({"a": torch.empty(0, 3), "b": base}) != weights_digest({"a": torch.empty(0, 4), "b": base})
