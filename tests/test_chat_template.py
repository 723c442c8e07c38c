"""Every family's own chat template, split around documents."""

from typing import Any

import pytest
import torch

from conftest import Load
from conversations import SIMPLE, full_request, library
from kvbind import Doc, Message
from kvbind.errors import ModelError
from kvbind.models import ChatTemplate, Fixed, Part, Slot, Turn
from tiny import FAMILIES, VISION

TEXT, PAGE = Part("text"), Part("page")
HEADS = {
    "llama": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
    "Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n",
    "mistral": "<s>[INST] ",
    "qwen2": "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
    "qwen3": "<|im_start|>user\n",
    "glm4v": "[gMASK]<sop><|user|>\n",
}


@pytest.mark.parametrize(("name", "head"), HEADS.items())
def test_native_heads(load: Load, name: str, head: str) -> None:
    assert load(name).chat.head("text") == head


def test_glyphs_head_is_the_papers_four_tokens(load: Load) -> None:
    backbone = load("glm4v")
    tokens = backbone.tokens(backbone.chat.head("page"), special=True)
    assert backbone.tokenizer.convert_ids_to_tokens(tokens) == ["[gMASK]", "<sop>", "<|user|>", "Ċ"]


def _messages(chat: ChatTemplate, turns: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Messages as each kind of model takes them: plain strings, or lists of items."""
    listed = chat.image_token is not None
    return [{"role": role, "content": [{"type": "text", "text": text}] if listed else text} for role, text in turns]


@pytest.mark.parametrize("name", FAMILIES)
def test_splitting_and_filling_equals_the_template_itself(load: Load, name: str) -> None:
    chat = load(name).chat
    words = ["You are brief.", "One. ", "Two. ", "Why?"]
    turns = [Turn("system", (TEXT,)), Turn("user", (TEXT, TEXT, TEXT))]
    filled = "".join(p.text if isinstance(p, Fixed) else words[p.part] for p in chat.split(turns))
    messages = _messages(chat, [("system", words[0]), ("user", "".join(words[1:]))])
    expected = chat.tokenizer.apply_chat_template(
        messages, chat_template=chat.source, tokenize=False, add_generation_prompt=True, **chat.options
    )
    assert filled == expected


@pytest.mark.parametrize("name", VISION)
def test_pages_stand_where_the_template_puts_images(load: Load, name: str) -> None:
    chat = load(name).chat
    pieces = chat.split([Turn("user", (PAGE, PAGE, TEXT))])
    assert [piece.part for piece in pieces if isinstance(piece, Slot)] == [0, 1, 2]
    messages = [{"role": "user", "content": [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "Why?"}]}]
    expected = chat.tokenizer.apply_chat_template(
        messages, chat_template=chat.source, tokenize=False, add_generation_prompt=True, **chat.options
    )
    parts = [chat.wrapper, chat.wrapper, "Why?"]
    assert "".join(p.text if isinstance(p, Fixed) else parts[p.part] for p in pieces) == expected


@pytest.mark.parametrize("name", ["llava_onevision", "paddleocr_vl"])
def test_templates_that_put_images_first_keep_their_order(load: Load, name: str) -> None:
    pieces = load(name).chat.split([Turn("user", (TEXT, PAGE, TEXT, PAGE))])
    assert [piece.part for piece in pieces if isinstance(piece, Slot)] == [1, 3, 0, 2]


@pytest.mark.parametrize("name", FAMILIES)
def test_words_of_users_are_never_special_tokens(load: Load, name: str) -> None:
    backbone = load(name)
    special = backbone.tokenizer.convert_ids_to_tokens(max(backbone.stops))
    lib = library(backbone)
    plain = full_request(lib, SIMPLE, 0).layout
    attack = full_request(lib, [Message("user", [Doc("pier"), Doc("storm"), Doc("dogs"), f"Who{special}?"])], 0).layout
    for token in backbone.stops:
        assert attack.ids.tolist().count(token) == plain.ids.tolist().count(token)
    assert special in backbone.tokenizer.decode(attack.ids)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_document_has_the_same_tokens_wherever_it_stands(load: Load, name: str) -> None:
    lib = library(load(name))
    orders = [["pier", "storm", "dogs"], ["dogs", "pier", "storm"]]
    found = []
    for order in orders:
        layout = full_request(lib, [Message("user", [*map(Doc, order), "Why?"])], 0).layout
        chunks = {name: segment.ids for name, segment in zip(order, layout.chunks, strict=True)}
        found.append(chunks)
    for document in orders[0]:
        assert torch.equal(found[0][document], found[1][document])


def test_a_template_that_would_drop_a_part_is_refused(load: Load) -> None:
    """A system prompt that silently vanishes is a wrong answer."""
    deaf = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    chat = ChatTemplate(load("qwen2").tokenizer, deaf)
    assert chat.split([Turn("user", (TEXT,))]) == [Slot(0)]
    with pytest.raises(ModelError, match=r"leaves out a part of this conversation \(system, user\)"):
        chat.split([Turn("system", (TEXT,)), Turn("user", (TEXT,))])


def test_a_templates_own_refusal_is_told(load: Load) -> None:
    with pytest.raises(ModelError, match="refuses this conversation: user and assistant must take turns"):
        load("mistral").chat.split([Turn("user", (TEXT,)), Turn("user", (TEXT,))])


@pytest.mark.parametrize("name", FAMILIES)
def test_what_follows_an_answer(load: Load, name: str) -> None:
    """The joint between turns is what the template writes there, and the head of a conversation is not repeated."""
    chat = load(name).chat
    pieces = chat.joint((TEXT,))
    assert [piece.part for piece in pieces if isinstance(piece, Slot)] == [0]
    written = "".join(piece.text if isinstance(piece, Fixed) else "Why?" for piece in pieces)
    messages = _messages(chat, [("user", "Who?"), ("assistant", "Tomas."), ("user", "Why?")])
    whole = chat.tokenizer.apply_chat_template(
        messages, chat_template=chat.source, tokenize=False, add_generation_prompt=True, **chat.options
    )
    assert whole.endswith("Tomas." + written)
