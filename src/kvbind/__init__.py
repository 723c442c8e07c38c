"""Position-independent KV caching: compile documents once, ask over any selection of them in any order."""

from importlib.metadata import version

from kvbind.answer import Answer, Source
from kvbind.bank import Bank
from kvbind.chat import Chat
from kvbind.corpus import read_documents
from kvbind.engine import Engine
from kvbind.errors import KvbindError
from kvbind.methods import Method, Write, parse_method
from kvbind.steps.compile import CompileReport
from kvbind.steps.decode import Sampling
from kvbind.steps.plan import Message
from kvbind.types import Doc, Document, Page, PageSpec, Passage, Text

__version__ = version("kvbind")
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
    "Source",
    "Text",
    "Write",
    "parse_method",
    "read_documents",
]
