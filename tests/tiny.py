"""Tiny random models of every family, saved as ordinary Hugging Face folders: no downloads, seconds to build.

Norms and biases are drawn too, so that a forgotten one changes the output, and the output head is scaled so that
next-token distributions are neither flat nor certain.
"""

import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Tokenizer

from tiny_dialects import Dialect
from tiny_families import REFUSED_FAMILIES, TEXT_FAMILIES, VISION_FAMILIES, Family

TEXT: tuple[str, ...] = tuple(TEXT_FAMILIES)
VISION: tuple[str, ...] = tuple(VISION_FAMILIES)
FAMILIES: tuple[str, ...] = TEXT + VISION
REFUSED: tuple[str, ...] = tuple(REFUSED_FAMILIES)
ALL: dict[str, Family] = TEXT_FAMILIES | VISION_FAMILIES | REFUSED_FAMILIES

ENGLISH = """
The lighthouse at the end of the northern pier was built in the year 1874, after three ships had been lost in a
single winter. Its first keeper, a retired navigator called Margaret Ellis, lived there with two dogs and a large
collection of maps. Every evening she climbed the ninety-six steps, trimmed the lamp, and wrote the weather into a
book that is now kept in the town museum. What did she write? Mostly numbers: the height of the water, the direction
of the wind, the names of the boats that passed. Answer the question using only the given documents. When did the
storm arrive, and who was the first to see it? The harbour master answered that nobody could have known. Questions
like these were asked for many years; the answers changed with every person who told the story.
"""


def folder(name: str, root: Path) -> Path:
    """The folder of one tiny model under `root`, built when it is not there yet; processes may race for it."""
    target = root / name
    if target.exists():
        return target
    root.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
    try:
        _build(name, ALL[name], work)
        os.rename(work, target)
    except OSError:
        if not target.exists():
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target


def _build(name: str, family: Family, out: Path) -> None:
    tokenizer = _tokenizer(family.dialect)
    tokenizer.save_pretrained(out)
    _model(name, family, tokenizer).save_pretrained(out)
    if family.images is not None:
        (out / "preprocessor_config.json").write_text(json.dumps(dict(family.images), indent=2))


def _tokenizer(dialect: Dialect) -> PreTrainedTokenizerFast:
    core = _byte_pairs()
    names = {"bos_token": dialect.bos, "eos_token": dialect.stops[0], "pad_token": dialect.pad}
    more = {"extra_special_tokens": list(dialect.specials), "chat_template": dialect.template}
    if dialect.tokenizer_class == "Qwen2Tokenizer":
        parts = json.loads(core.to_str())["model"]
        merges = [tuple(pair) for pair in parts["merges"]]
        built = Qwen2Tokenizer(vocab=parts["vocab"], merges=merges, **names, **more)
    else:
        built = PreTrainedTokenizerFast(tokenizer_object=core, **names, **more)
    built.add_tokens([tokenizers.AddedToken(token, special=False, normalized=False) for token in dialect.plain])
    if dialect.prepends_bos:
        built.backend_tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{dialect.bos} $A",
            pair=f"{dialect.bos} $A {dialect.bos} $B",
            special_tokens=[(dialect.bos, built.convert_tokens_to_ids(dialect.bos))],
        )
    return built


def _byte_pairs() -> tokenizers.Tokenizer:
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    core.train_from_iterator([ENGLISH], trainer)
    return core


def _model(name: str, family: Family, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    config = transformers.AutoConfig.for_model(family.model_type, **_config(family, tokenizer))
    with torch.random.fork_rng(devices=[]):
        model = _auto_class(family).from_config(config)
    _randomise(model, zlib.crc32(name.encode()))
    ends = tokenizer.convert_tokens_to_ids(list(family.dialect.stops))
    model.generation_config = transformers.GenerationConfig(**_ids(tokenizer) | {"eos_token_id": ends})
    return model


def _auto_class(family: Family) -> Any:
    if family.images is not None:
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForSeq2SeqLM if family.model_type == "t5" else transformers.AutoModelForCausalLM


def _ids(tokenizer: PreTrainedTokenizerFast) -> dict[str, int | None]:
    return {f"{part}_token_id": getattr(tokenizer, f"{part}_token_id") for part in ("bos", "eos", "pad")}


def _config(family: Family, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    words: Mapping[str, Any] = {"vocab_size": len(tokenizer), **_ids(tokenizer)}
    filled = {
        key: tokenizer.convert_tokens_to_ids(value) if key.endswith("_token_id") else value
        for key, value in family.config.items()
    }
    if family.images is None:
        return filled | words
    return filled | {"text_config": dict(filled["text_config"]) | words}


def _randomise(model: PreTrainedModel, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        weight.data.copy_(_draw(name, noise))


def _draw(name: str, noise: torch.Tensor) -> torch.Tensor:
    if noise.ndim == 1:
        return 0.3 * noise if name.endswith(("bias", "newline")) else 1 + 0.2 * noise
    if "embed" in name and noise.ndim == 2:
        return 0.3 * noise
    gain = 2.0 if name.startswith("lm_head") else 1.2
    return noise * gain / noise[0].numel() ** 0.5
