"""Passages by content key and documents by id: the only part that keeps anything."""

from kvbind.bank.audit import BankStats
from kvbind.bank.bank import Bank
from kvbind.bank.catalogue import DocumentInfo
from kvbind.bank.codec import LayeredKV
from kvbind.bank.keys import FORMAT, content_key
from kvbind.bank.store import DirectoryStore, MemoryStore, Record, Store

__all__ = [
    "FORMAT",
    "Bank",
    "BankStats",
    "DirectoryStore",
    "DocumentInfo",
    "LayeredKV",
    "MemoryStore",
    "Record",
    "Store",
    "content_key",
]
