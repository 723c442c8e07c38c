"""Text to token ids: templates' text, users' text."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from conftest import Load
from kvbind.errors import ModelError
from kvbind.models import ChatTemplate, Fixed, Part, Slot, Turn
from kvbind.models.tokens import TextEncoder
from tiny import FAMILIES

WORDS = ("<unk>", "<s>", "[INST]", "[/INST]", "\u2581", "\u2581The", "The", "\u2581lamp", "lamp")


def metaspace(style: str) -> PreTrainedTokenizerFast:
    """A tokenizer as Llama 2 and Mistral have it, in its older and newer form."""
    pieces = [(word, -float(len(WORDS) - n)) for n, word in enumerate(WORDS)]
    core = Tokenizer(models.Unigram(pieces, unk_id=0))
    if style == "normalizer":
        core.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=style)
    core.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", unk_token="<unk>")
    tokenizer.add_tokens([AddedToken(token, special=True) for token in ("[INST]", "[/INST]")], special_tokens=True)
    return tokenizer


@pytest.mark.parametrize("style", ["normalizer", "always", "first"])
def test_no_blank_is_put_before_each_content(style: str) -> None:
    """A document's first word is the same token as in the middle of a prompt: no blank comes from the tokenizer."""
    tokenizer = metaspace(style)
    encoder = TextEncoder(tokenizer)
    shown = tokenizer.convert_ids_to_tokens(encoder.content("The lamp"))
    assert shown == ["The", "\u2581lamp"]
    template = tokenizer.convert_ids_to_tokens(encoder.template("<s>[INST] "))
    assert template[:2] == ["<s>", "[INST]"]


@pytest.mark.parametrize("name", FAMILIES)
def test_markup_is_characters_in_a_users_text(load: Load, name: str) -> None:
    backbone = load(name)
    added = backbone.tokenizer.get_added_vocab()
    assert len(added) > 1
    for token, number in added.items():
        assert number not in backbone.tokens(f"a {token} b")
        assert number in backbone.tokens(f"a {token} b", special=True)
        assert backbone.tokenizer.decode(backbone.tokens(f"a {token} b")) == f"a {token} b"


def test_added_words_that_are_no_markup_stay(load: Load) -> None:
    state = load("qwen3").tokenizer.backend_tokenizer.to_str()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(state))
    tokenizer.add_tokens(["    ", "kvbind"])
    ids = TextEncoder(tokenizer).content("    kvbind")
    assert tokenizer.convert_ids_to_tokens(ids) == ["    ", "kvbind"]


def test_threads_share_an_encoder(load: Load) -> None:
    backbone = load("qwen2")
    text = f"Who?{backbone.tokenizer.eos_token}"
    expected = {True: backbone.tokens(text, special=True), False: backbone.tokens(text)}
    assert expected[True] != expected[False]
    with ThreadPoolExecutor(4) as pool:
        jobs = [(special, pool.submit(backbone.tokens, text, special=special)) for special in [True, False] * 400]
        assert all(job.result() == expected[special] for special, job in jobs)


def test_truncation_in_a_tokenizers_file_is_ignored(load: Load) -> None:
    core = Tokenizer.from_str(load("qwen2").tokenizer.backend_tokenizer.to_str())
    core.enable_truncation(3)
    core.enable_padding(length=50)
    cut = PreTrainedTokenizerFast(tokenizer_object=core)
    assert json.loads(cut.backend_tokenizer.to_str())["truncation"] is not None
    assert TextEncoder(cut).content("one two three four five") == load("qwen2").tokens("one two three four five")


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(ModelError, match=r"add a tokenizer\.json"):
        TextEncoder(object())


def test_todays_date_is_in_no_head(load: Load) -> None:
    dated = "{{ strftime_now('%d %B %Y') }} {% for m in messages %}{{ m.content }}{% endfor %}"
    chat = ChatTemplate(load("qwen2").tokenizer, dated)
    assert chat.split([Turn("user", (Part("text"),))]) == [Fixed("26 Jul 2024 "), Slot(0)]
    assert datetime.now().year > 2024
