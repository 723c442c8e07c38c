"""The bank: documents by id, passages by content key, in memory or in a folder."""

import difflib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from kvbind.bank import audit
from kvbind.bank.catalogue import Catalogue, DocumentInfo
from kvbind.bank.codec import passage_meta, passage_tensors, read_passage
from kvbind.bank.folder import CATALOGUE, open_folder
from kvbind.bank.hot import HotTier
from kvbind.bank.store import DirectoryStore, MemoryStore, Record, Store
from kvbind.errors import BankError, DamagedRecordError, DocumentError
from kvbind.types import Chunk, Document, Passage, text_digest


class Bank:
    """Compiled passages, the documents they come from, and what was computed about them.

    One bank may be used by several threads, and one folder by several processes. `damage` collects a line for
    every damaged record that was met; such a record is put aside and is a miss from then on.
    """

    def __init__(self, store: Store, catalogue: Catalogue, hot_bytes: int) -> None:
        self.store, self.catalogue, self.hot = store, catalogue, HotTier(hot_bytes)
        self.damage: list[str] = []
        self._lock = threading.Lock()
        self._hits = self._misses = 0

    @classmethod
    def memory(cls) -> Self:
        """A bank that lives as long as the process; it needs no hot tier."""
        return cls(MemoryStore(), Catalogue(":memory:"), hot_bytes=0)

    @classmethod
    def open(cls, path: str | Path, *, hot_bytes: int = 2 << 30, create: bool = True) -> Self:
        """The bank in a folder; `hot_bytes` is how much of it is also kept in memory (0: nothing).

        Raises BankError if there is none and `create` is false, if the folder holds other things, or if the bank
        was written by a newer version.
        """
        folder = Path(path).expanduser()
        open_folder(folder, create)
        return cls(DirectoryStore(folder), Catalogue(str(folder / CATALOGUE)), hot_bytes)

    def put_document(self, document: Document) -> int:
        """Store a document and return its version: 1, and one more each time the text differs.

        A new version drops the passages of the one before, unless another document has them too.
        """
        with self.catalogue.transaction():
            version, stale = self.catalogue.put_document(document)
            self._drop(stale)
        if version > 1:
            self.catalogue.flush()
        return version

    def document(self, document_id: str) -> Document:
        """A document's current version; raises DocumentError with the ids that look alike."""
        document = self.catalogue.document(document_id)
        if document is None:
            raise self._unknown(document_id)
        return document

    def _unknown(self, document_id: str) -> DocumentError:
        close = difflib.get_close_matches(document_id, self.catalogue.document_ids())
        mend = f"did you mean {' or '.join(map(repr, close))}?" if close else "compile it first"
        return DocumentError(f"no document {document_id!r} in the bank: {mend}")

    def documents(self) -> list[DocumentInfo]:
        """All documents, sorted by id."""
        return self.catalogue.documents()

    def remove(self, document_id: str) -> int:
        """Remove a document with its text, links, vectors, and records that no other document has.

        Returns the bytes of the records. Raises DocumentError.
        """
        with self.catalogue.transaction():
            if self.catalogue.document(document_id) is None:
                raise self._unknown(document_id)
            # Inside the transaction: nobody can link one of these records before it is gone.
            freed = self._drop(self.catalogue.remove(document_id))
        self.catalogue.flush()
        return freed

    def _drop(self, keys: Sequence[str]) -> int:
        freed = 0
        for key in keys:
            self.hot.drop(key)
            freed += self.store.size(key) or 0
            self.store.drop(key)
        return freed

    def put(self, passage: Passage, *, chunk: Chunk, representation: str, write: str) -> int:
        """Store a passage unless it is there, link it to its chunk, and return the record's bytes.

        Raises DocumentError if the chunk's document is not in the bank, BankError if it cannot be written.
        """
        key, tensors = passage.key, passage_tensors(passage)
        # Linked before it is written, so that no removal elsewhere takes it for an orphan in between.
        new = self.catalogue.link(key, chunk, representation, write, passage.rows, 0)
        try:
            size = self.store.size(key)
            if size is None:
                size = self.store.put(key, tensors, passage_meta(passage))
        except BaseException:
            if new and not self.has(key):
                self.catalogue.unlink(key, chunk, representation, write)
            raise
        with self.catalogue.transaction():
            self.catalogue.set_bytes(key, size)
            if not self.catalogue.linked_by(key):  # the document was removed while its passage was written
                self._drop([key])
        return size

    def put_head(self, passage: Passage) -> None:
        """Store a model's native head, which belongs to no document, unless it is there."""
        self.catalogue.add_head(passage.key, passage.rows)
        if not self.has(passage.key):
            self.store.put(passage.key, passage_tensors(passage), passage_meta(passage))

    def link(self, key: str, chunk: Chunk, representation: str, write: str) -> bool:
        """Link a stored passage to another chunk; false, and no link, if there is no such passage to read."""
        with self.catalogue.transaction():
            record = self.open_record(key)
            if record is None:
                return False
            rows, size = int(record.meta.get("rows", 0)), self.store.size(key) or 0
            record.close()
            self.catalogue.link(key, chunk, representation, write, rows, size)
            return True

    def get(self, key: str) -> Passage | None:
        """A passage, verified whole, or None. Its tensors are shared: do not write to them.

        A damaged record is put aside, noted in `damage`, and None: compile the chunk again.
        """
        # Asked even for a hot passage: another process may have removed it, and removed is removed.
        passage = self.hot.get(key) if self.has(key) else None
        if passage is None:
            passage = self._read(key)
            if passage is not None:
                self.hot.put(passage)
            if not self.has(key):  # removed while it was read
                self.hot.drop(key)
        with self._lock:
            self._hits += passage is not None
            self._misses += passage is None
        return passage

    def _read(self, key: str) -> Passage | None:
        self.hot.drop(key)
        record = self.open_record(key)
        if record is None:
            return None
        try:
            return read_passage(record)
        except DamagedRecordError as error:
            self._put_aside(key, error)
            return None
        finally:
            record.close()

    def _put_aside(self, key: str, error: DamagedRecordError) -> None:
        self.hot.drop(key)
        self.store.quarantine(key)
        self.damage.append(error.finding)

    def has(self, key: str) -> bool:
        """Whether a record is there; it is not read."""
        return self.store.size(key) is not None

    def open_record(self, key: str) -> Record | None:
        """A record to be read one tensor at a time, or None; close it when done.

        Its `tensor` raises DamagedRecordError; `get` of the same key then puts the record aside.
        """
        try:
            return self.store.get(key)
        except DamagedRecordError as error:
            self._put_aside(key, error)
            return None

    def vectors(self, texts: Sequence[str], embedder: str) -> list[Tensor | None]:
        """The stored vector (d,) of each text, float32, or None."""
        found = self.catalogue.vectors(map(text_digest, texts), embedder)
        return [None if blob is None else torch.frombuffer(bytearray(blob), dtype=torch.float32) for blob in found]

    def document_vectors(self, embedder: str) -> tuple[list[str], Tensor | None, list[str]]:
        """Ids and vectors (N, d) of the documents that have one, None if none has, and the ids of those without."""
        rows = self.catalogue.document_vectors(embedder)
        known = [(identifier, blob) for identifier, _, blob in rows if blob is not None]
        lacking = [identifier for identifier, _, blob in rows if blob is None]
        joined = bytearray().join(blob for _, blob in known)
        vectors = torch.frombuffer(joined, dtype=torch.float32).reshape(len(known), -1) if known else None
        return [identifier for identifier, _ in known], vectors, lacking

    def put_vectors(self, texts: Sequence[str], embedder: str, vectors: Tensor) -> None:
        """Store one vector for each text: `vectors` (N, d). They stay while a document or chunk has that text."""
        if len(texts) != len(vectors):
            raise BankError(f"{len(texts)} texts but {len(vectors)} vectors of {embedder}: give one for each text")
        rows = vectors.detach().to("cpu", torch.float32).contiguous().numpy()
        self.catalogue.put_vectors(map(text_digest, texts), embedder, (row.tobytes() for row in rows))

    def get_setting(self, name: str, default: Any = None) -> Any:
        """A setting kept in the bank, or `default`."""
        return self.catalogue.setting(name, default)

    def set_setting(self, name: str, value: Any) -> None:
        """Keep a setting in the bank: anything that JSON can hold."""
        self.catalogue.put_setting(name, value)

    def stats(self) -> audit.BankStats:
        """What the bank holds, and how often it was asked since it was opened."""
        return audit.stats(self.store, self.catalogue, self.hot.bytes, self._hits, self._misses, len(self.damage))

    def verify(self, progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Read every record in full and return a line for each fault; damaged records are put aside.

        `progress` is called with how many records are done and how many there are.
        """
        return audit.verify(self.store, self.catalogue, self._put_aside, progress)

    def prune(self) -> int:
        """Delete the records that no document has, quarantined copies included; returns the bytes freed."""
        with self.catalogue.transaction():
            owned = self.catalogue.linked().keys() | self.catalogue.heads()
            return self._drop(sorted({*self.store.keys(), *self.store.quarantined()} - owned))

    def close(self) -> None:
        """Close the catalogue and forget the hot passages."""
        self.hot.clear()
        self.catalogue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
