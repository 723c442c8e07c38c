"""Passages by content key and documents by id: the only part that keeps anything."""

from kvbind.bank.audit import BankStats
from kvbind.bank.bank import Bank
from kvbind.bank.catalogue import DocumentInfo, checked_text
from kvbind.bank.keys import FORMAT, content_key
from kvbind.bank.memory import MemoryStore
from kvbind.bank.store import DirectoryStore, Record, Store

__all__ = [
    "FORMAT",
    "Bank",
    "BankStats",
    "DirectoryStore",
    "DocumentInfo",
    "MemoryStore",
    "Record",
    "Store",
    "checked_text",
    "content_key",
]
