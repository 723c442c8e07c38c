"""A configuration as a file: what `kvbind tune` writes and `kvbind ask --config` takes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from kvbind.errors import ConfigError
from kvbind.files import write_file
from kvbind.types import PageSpec

FORMAT = 1


def write_config(path: Path, method: str, page: PageSpec, evidence: Mapping[str, Any]) -> None:
    """Write a method's spelling, the page spec that goes with it, and why they were chosen."""
    content = {"format": FORMAT, "method": method, "page": asdict(page), "evidence": evidence}
    write_file(path, [json.dumps(content, ensure_ascii=False, indent=2, allow_nan=False).encode() + b"\n"])


def read_config(path: Path) -> dict[str, Any]:
    """The method and the page spec of a file, as a bank keeps them; raises ConfigError."""
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}): check the path") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON ({error}): give the config.json that `kvbind tune` wrote") from error
    if not isinstance(content, dict) or not isinstance(content.get("method"), str) or content.get("format") != FORMAT:
        raise ConfigError(f'{path}: expected "format": {FORMAT} and a "method", as `kvbind tune` writes them')
    return {"method": content["method"], **({"page": _page(path, content["page"])} if "page" in content else {})}


def _page(path: Path, page: Any) -> dict[str, Any]:
    """The page spec, each field checked."""
    if not isinstance(page, dict):
        raise ConfigError(f'{path}: "page" is {json.dumps(page)[:40]}: expected an object')
    kinds = get_type_hints(PageSpec)
    for name, value in page.items():
        if name not in kinds:
            known = ", ".join(field.name for field in fields(PageSpec))
            raise ConfigError(f'{path}: "page" has no {name!r}; it has {known}')
        if not _fits(value, kinds[name]):
            raise ConfigError(f'{path}: "page": {name} is {json.dumps(value)[:40]}, which it cannot be')
    return page


def _fits(value: Any, kind: Any) -> bool:
    if get_args(kind):  # one of a few words
        return value in get_args(kind)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is kind
