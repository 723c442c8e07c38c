"""What `kvbind tune` tries, as data."""

from collections.abc import Iterable

FULL_TEXT, FULL_PAGES = "full", "full:dpi=72"

TEXT = (
    "template",
    "dummy:k=4",
    "epic:k=4",
    "epic:k=16",
    "cacheblend:ratio=0.16",
    "cacheblend:ratio=0.3",
    "qcfuse:ratio=0.15",
    "qcfuse:ratio=0.3",
    "qcfuse:ratio=0.3,template=on",
    "qcfuse-view:ratio=0.5",
)
"""Documents as text: published settings, and QCFuse also at half its ratio and over passages of `template`."""

PAGES = (
    "template:dpi=72",
    "template:dpi=96",
    "template:dpi=120",
    *(f"qv-pic:alpha={alpha},budget={budget}" for alpha in (0.5, 0.65, 0.8) for budget in (2, 4)),
)
"""Documents as page images: QV-PIC's resolutions, and its parameters around the published ones."""


def candidates(reads_pages: bool, methods: Iterable[str] = ()) -> tuple[str, ...]:
    """Full prefill, as text and where the model reads pages as pages too, then `methods`, or the table above."""
    full, table = ((FULL_TEXT, FULL_PAGES), TEXT + PAGES) if reads_pages else ((FULL_TEXT,), TEXT)
    return tuple(dict.fromkeys([*full, *(tuple(methods) or table)]))
