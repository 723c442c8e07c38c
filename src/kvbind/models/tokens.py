"""Text to token ids: what the template wrote keeps its special tokens, what a user wrote never has any."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tokenizers import Tokenizer

from kvbind.errors import ModelError

# Added tokens that steer a model, special or not: `<think>`, `[INST]`. Runs of blanks and the like are only words.
_MARKUP = re.compile(r"[<\[].*[>\]]", re.DOTALL)


class TextEncoder:
    """A tokenizer's two readings, in copies of their own: nothing is switched between calls, so threads may share it.

    Each content is tokenised alone. In a user's text added tokens that look like markup are ordinary characters, and
    no blank is put before it where the tokenizer would do so at the beginning of a prompt.
    """

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(f"{type(tokenizer).__name__} has no fast tokenizer: add a tokenizer.json to the model")
        state = json.loads(backend.to_str())
        self._special = _quiet(state)
        self._plain = _plain(state)

    def template(self, text: str) -> list[int]:
        """Token ids of text that the chat template wrote."""
        ids: list[int] = self._special.encode(text, add_special_tokens=False).ids
        return ids

    def content(self, text: str) -> list[int]:
        """Token ids of text of a user or a document."""
        ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        return ids


def _quiet(state: dict[str, Any]) -> Tokenizer:
    # A tokenizer.json may carry truncation: it would cut documents silently.
    return Tokenizer.from_str(json.dumps({**state, "truncation": None, "padding": None}))


def _plain(state: dict[str, Any]) -> Tokenizer:
    kept = [token for token in state["added_tokens"] if not _is_markup(token)]
    muted = [_muted(token) if _is_markup(token) else token for token in state["added_tokens"]]
    plain = _quiet(_without_blank({**state, "added_tokens": muted, "post_processor": None}))
    if all(plain.token_to_id(token["content"]) == token["id"] for token in kept):
        return plain
    return _quiet(_without_blank({**state, "added_tokens": [], "post_processor": None}))


def _is_markup(token: dict[str, Any]) -> bool:
    return bool(token["special"] or _MARKUP.fullmatch(token["content"]))


def _muted(token: dict[str, Any]) -> dict[str, Any]:
    # Renamed to what no text holds, not left out: ids of the tokens behind it are counted off anew on loading.
    return {**token, "content": f"\ue0f2{token['id']}\ue0f3", "special": False}


def _without_blank(state: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(state))
    for step in [*_steps(plain.get("pre_tokenizer"), "pretokenizers"), *_steps(plain.get("decoder"), "decoders")]:
        if step["type"] == "Metaspace":
            step["prepend_scheme"] = "never"
    plain["normalizer"] = _without_prepend(plain.get("normalizer"))
    return plain


def _steps(part: dict[str, Any] | None, inner: str) -> Iterator[dict[str, Any]]:
    if part is not None:
        yield part
        yield from part.get(inner, [])


def _without_prepend(normalizer: dict[str, Any] | None) -> dict[str, Any] | None:
    if normalizer is None or normalizer["type"] == "Prepend":
        return None
    if normalizer["type"] == "Sequence":
        kept = [step for step in normalizer["normalizers"] if step["type"] != "Prepend"]
        return {**normalizer, "normalizers": kept}
    return normalizer
