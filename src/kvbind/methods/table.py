"""Every method by name, and how its command-line spelling is read: `qv-pic:alpha=0.65,budget=4`."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import entry_points
from typing import Any

from kvbind.errors import MethodError
from kvbind.methods.allocate import cumulative
from kvbind.methods.method import Method, Write
from kvbind.methods.selectors import (
    Probe,
    Selector,
    checked_share,
    every_row,
    first_rows,
    most_important,
)
from kvbind.types import Page, PageSpec, Representation, Text
from kvbind.writers import Kind, read_writer

Factory = Callable[..., Method]


def _shown(page: PageSpec, dpi: int) -> tuple[Representation, ...]:
    return (Page(dpi, page),) if dpi else (Text(),)


def full(page: PageSpec, dpi: int = 0) -> Method:
    """Full prefill, nothing reused: the baseline. Documents as text, or as page images at `dpi`."""
    return Method("full", None, _shown(page, dpi))


def prefix_free(page: PageSpec, dpi: int = 0) -> Method:
    """Each document compiled with nothing before it: naive reuse. As text, or as page images at `dpi`."""
    return Method("prefix-free", Write("bare"), _shown(page, dpi))


def dummy(page: PageSpec, k: int = 4, dpi: int = 0) -> Method:
    """Each document compiled after `k` dummy tokens, which are dropped. As text, or as page images at `dpi`."""
    if k < 1:
        raise MethodError(f"dummy:k={k}: at least one dummy token is needed (prefix-free has none)")
    return Method("dummy", Write("dummy", k), _shown(page, dpi))


def template(page: PageSpec, dpi: int = 0) -> Method:
    """Each document compiled after the model's own chat-template head. As text, or as page images at `dpi`."""
    return Method("template", Write("template"), _shown(page, dpi))


def qv_pic(
    page: PageSpec, alpha: float = 0.65, budget: int = 4, low: int = 72, high: int = 120, template: bool = True
) -> Method:
    """Page images at `low` DPI; those most relevant to the question, up to `budget`, at `high` (QV-PIC, eq. 6)."""
    cumulative([], alpha=alpha, budget=budget)  # refuses parameters out of range before any work
    pages = (Page(low, page), Page(high, page))
    write = Write("template" if template else "bare")
    return Method("qv-pic", write, pages, partial(_promote, alpha=alpha, budget=budget))


def _promote(scores: Any, *, alpha: float, budget: int) -> list[int]:
    promoted = cumulative(scores, alpha=alpha, budget=budget)
    return [int(index in promoted) for index in range(len(scores))]


def epic(page: PageSpec, k: int = 16, dpi: int = 0) -> Method:
    """Compiled alone; the first `k` rows of each document are computed anew (EPIC, LegoLink-k)."""
    if k < 0:
        raise MethodError(f"epic:k={k}: give the number of rows at each document's start, 0 or more")
    return Method("epic", Write("bare"), _shown(page, dpi), selector=Selector(partial(first_rows, k=k)))


def cacheblend(page: PageSpec, ratio: float = 0.16, check: int = 1, gradual: bool = False, dpi: int = 0) -> Method:
    """Compiled alone; from layer `check` on, the `ratio` of rows whose values differ most is computed anew.

    CacheBlend. `gradual` narrows over the layers after it too, by a schedule of ours: the share is ratio to a power
    that grows from 0.8 at the check layer to 1.2 at the last.
    """
    checked_share("cacheblend:ratio", ratio)
    if check < 0:
        raise MethodError(f"cacheblend:check={check}: give the number of a layer, counted from 0")
    shares = partial(_blend_shares, ratio=ratio, check=check, gradual=gradual)
    return Method("cacheblend", Write("bare"), _shown(page, dpi), selector=Selector(every_row, shares=shares))


def _blend_shares(layers: int, *, ratio: float, check: int, gradual: bool) -> dict[int, float]:
    if check >= layers:
        raise MethodError(f"cacheblend:check={check}: the model has layers 0 to {layers - 1}")
    if not gradual:
        return {check: ratio}
    steps = max(1, layers - 1 - check)
    return {layer: ratio ** (0.8 + 0.4 * (layer - check) / steps) if ratio else 0.0 for layer in range(check, layers)}


def qcfuse(
    page: PageSpec, ratio: float = 0.3, layer: int = -1, digest: float = 0.15, template: bool = False, dpi: int = 0
) -> Method:
    """The `ratio` of rows that the question looks at most, at one critical layer, computed anew (QCFuse, 2604.08585).

    `layer` -1: the model's profiled layer, or its middle one. `digest`: the share of each document's rows, those with
    the largest keys, that the question is read behind.
    """
    if layer < -1:
        raise MethodError(f"qcfuse:layer={layer}: give a layer's number from 0 on, or -1 for the profiled one")
    probe = Probe("norm", digest, () if layer < 0 else (layer,))
    return _query_centric("qcfuse", ratio, probe, template, _shown(page, dpi))


def qcfuse_view(
    page: PageSpec, ratio: float = 0.5, digest: float = 0.15, layers: int = 3, template: bool = False, dpi: int = 0
) -> Method:
    """As qcfuse, with anchors scored by repeating each document, at `layers` critical layers (QCFuse, 2606.05875).

    `digest` 1 is ProphetKV, 0 is FusionRAG.
    """
    if layers < 1:
        raise MethodError(f"qcfuse-view:layers={layers}: at least one critical layer is needed")
    probe = Probe("repeat", digest, count=layers)
    return _query_centric("qcfuse-view", ratio, probe, template, _shown(page, dpi))


def _query_centric(name: str, ratio: float, probe: Probe, template: bool, shown: tuple[Representation, ...]) -> Method:
    checked_share(f"{name}:ratio", ratio)
    checked_share(f"{name}:digest", probe.digest)
    selector = Selector(partial(most_important, ratio=ratio), probe)
    return Method(name, Write("template" if template else "bare"), shown, selector=selector)


def kv_packet(page: PageSpec, adapter: str = "") -> Method:
    """Each document compiled between soft rows that were trained for this, and are kept with it (KV Packet)."""
    return Method("kv-packet", _trained("kv-packet", "packet", adapter), (Text(),))


def sempic(page: PageSpec, adapter: str = "") -> Method:
    """Each document compiled by a LoRA writer that was trained for this; the base model reads (SemPIC)."""
    return Method("sempic", _trained("sempic", "writer", adapter), (Text(),))


def joint(page: PageSpec, adapter: str = "") -> Method:
    """Each document compiled by a LoRA writer between soft rows, trained together (SemPIC, joint)."""
    return Method("joint", _trained("joint", "joint", adapter), (Text(),))


def _trained(method: str, kind: Kind, adapter: str) -> Write:
    if not adapter:
        raise MethodError(f"{method} needs {method}:adapter=DIR, a folder that `kvbind train {kind}` made")
    writer = read_writer(adapter)
    if writer.config.kind != kind:
        fitting = {"packet": "kv-packet", "writer": "sempic", "joint": "joint"}[writer.config.kind]
        raise MethodError(f"{adapter} is the work of `kvbind train {writer.config.kind}`: use {fitting}:adapter=DIR")
    return Write(writer.config.frame, writer=writer)


BUILT_IN: Mapping[str, Factory] = {
    "full": full,
    "prefix-free": prefix_free,
    "dummy": dummy,
    "template": template,
    "qv-pic": qv_pic,
    "epic": epic,
    "cacheblend": cacheblend,
    "qcfuse": qcfuse,
    "qcfuse-view": qcfuse_view,
    "kv-packet": kv_packet,
    "sempic": sempic,
    "joint": joint,
}


def factories() -> dict[str, Factory]:
    """Built-in methods, and those that installed packages add through the entry-point group `kvbind.methods`."""
    added = {point.name: point for point in entry_points(group="kvbind.methods") if point.name not in BUILT_IN}
    return {**BUILT_IN, **{name: point.load() for name, point in added.items()}}


def parameters(factory: Factory) -> dict[str, inspect.Parameter]:
    """A method's own parameters, by name."""
    signature = inspect.signature(factory).parameters
    return {name: parameter for name, parameter in signature.items() if name != "page"}


def parse_method(spelling: str, page: PageSpec | None = None) -> Method:
    """A method from its spelling, `name` or `name:value` or `name:key=value,…`; MethodError names what is wrong."""
    name, values = given(spelling)
    return factories()[name](page or PageSpec(), **values)


def given(spelling: str) -> tuple[str, dict[str, Any]]:
    """A spelling's name, and the parameters that it gives; MethodError names what is wrong."""
    name, _, rest = spelling.partition(":")
    known = factories()
    if name not in known:
        raise MethodError(f"unknown method {name!r}; known are {', '.join(known)}")
    taken = parameters(known[name])
    values: dict[str, Any] = {}
    for number, item in enumerate(filter(None, rest.split(","))):
        key, equals, value = item.partition("=")
        if not equals and number == 0 and taken:
            key, value = next(iter(taken)), item
        if key not in taken:
            raise MethodError(f"{name} takes no parameter {key!r}; it takes {', '.join(taken) or 'none'}")
        if key in values:
            raise MethodError(f"{name}: {key} is given twice")
        values[key] = _value(name, key, value, taken[key].default)
    return name, values


def _value(method: str, key: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        switches = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False}
        if (text.lower() or "on") in {**switches, "0": False}:
            return {**switches, "0": False}[text.lower() or "on"]
        raise MethodError(f"{method}:{key}={text}: expected on or off")
    try:
        return type(default)(text) if default is not None else text
    except ValueError:
        raise MethodError(f"{method}:{key}={text}: expected {type(default).__name__}, like {default}") from None
