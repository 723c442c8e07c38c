"""Position-independent KV caching: compile documents once, ask over any selection of them in any order."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbind.answer import Answer, Source
    from kvbind.bank import Bank
    from kvbind.chat import Chat
    from kvbind.corpus import read_documents
    from kvbind.engine import Engine
    from kvbind.errors import KvbindError
    from kvbind.methods import Method, Selector, Write, parse_method
    from kvbind.steps.compile import CompileReport
    from kvbind.steps.decode import Sampling
    from kvbind.steps.plan import Message
    from kvbind.types import Doc, Document, Page, PageSpec, Passage, Text

# Where each public name lives. Imported when first used: `kvbind --help` need not wait for torch and transformers.
_HOMES = {
    "kvbind.answer": ("Answer", "Source"),
    "kvbind.bank": ("Bank",),
    "kvbind.chat": ("Chat",),
    "kvbind.corpus": ("read_documents",),
    "kvbind.engine": ("Engine",),
    "kvbind.errors": ("KvbindError",),
    "kvbind.methods": ("Method", "Selector", "Write", "parse_method"),
    "kvbind.steps.compile": ("CompileReport",),
    "kvbind.steps.decode": ("Sampling",),
    "kvbind.steps.plan": ("Message",),
    "kvbind.types": ("Doc", "Document", "Page", "PageSpec", "Passage", "Text"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "Answer",
    "Bank",
    "Chat",
    "CompileReport",
    "Doc",
    "Document",
    "Engine",
    "KvbindError",
    "Message",
    "Method",
    "Page",
    "PageSpec",
    "Passage",
    "Sampling",
    "Selector",
    "Source",
    "Text",
    "Write",
    "parse_method",
    "read_documents",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'kvbind' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
