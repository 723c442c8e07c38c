"""Models that ship with the package, and the page spec that a model's folder may carry."""

import difflib
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from kvbind.errors import ModelError
from kvbind.types import PageSpec

BUILT_IN: Mapping[str, Path] = {"pocket": Path(__file__).parent / "pocket"}
SUMS = "SHA256SUMS"
CARD = "kvbind.json"


def locate(model: str | Path) -> str | Path:
    """Where a model is: the folder of a built-in one, its files checked; any other name or path as it is.

    Raises ModelError for a damaged built-in model, and for a name that is nearly one.
    """
    name = str(model)
    if name in BUILT_IN:
        _verify(name, BUILT_IN[name])
        return BUILT_IN[name]
    near = difflib.get_close_matches(name.lower(), BUILT_IN, n=1, cutoff=0.85)
    if near and not Path(name).exists():
        raise ModelError(f"there is no built-in model {name}: did you mean {near[0]!r}?")
    return model


def page_spec(model: str | Path) -> PageSpec | None:
    """The pages that a model reads best, from `kvbind.json` in its folder; None where it says nothing."""
    card = Path(BUILT_IN.get(str(model), model)) / CARD
    if not card.is_file():
        return None
    try:
        return PageSpec(**json.loads(card.read_text(encoding="utf-8"))["page"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{card} does not describe a page ({error}): mend it, or delete it") from error


def _verify(name: str, folder: Path) -> None:
    sums = folder / SUMS
    if not sums.is_file():
        raise ModelError(f"the built-in model {name} is not in this installation: install kvbind again")
    for line in sums.read_text(encoding="utf-8").splitlines():
        digest, _, file = line.partition("  ")
        path = folder / file
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise ModelError(f"the built-in model {name} is damaged ({file}): install kvbind again")
