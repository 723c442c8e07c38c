"""Content keys: what a passage's numbers depend on, as one digest."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

FORMAT = 1
"""The version of keys, records and bank folders: another number finds none of the old records."""


def _plain(value: Any, where: str) -> Any:
    """The same facts with only what JSON can hold; anything else is refused rather than turned into a string."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        for name in value:
            # JSON would write 1 and "1" alike, and two different facts would share a key.
            if not isinstance(name, str):
                raise TypeError(f"{where}: the name {name!r} must be a string to enter a content key")
        return {name: _plain(item, f"{where}.{name}") for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(f"{where}: a {type(value).__name__} cannot enter a content key; give its digest instead")


def content_key(facts: Mapping[str, Any]) -> str:
    """SHA-256 in hexadecimal of the canonical JSON of `facts` and the format version.

    Facts are strings, numbers, booleans, None, and lists and mappings of these. Raises TypeError for anything
    else (tensors, bytes, sets), and ValueError when `facts` holds "format" itself.
    """
    if "format" in facts:
        raise ValueError('facts: the name "format" is taken by the key\'s own version; use another name')
    plain = _plain({**facts, "format": FORMAT}, "facts")
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()
