"""The bank: documents by id, passages by content key, in memory or in a folder."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor

from kvbind.bank import audit
from kvbind.bank.catalogue import Catalogue, DocumentInfo
from kvbind.bank.folder import CATALOGUE, open_folder
from kvbind.bank.memory import MemoryStore
from kvbind.bank.memos import Memos
from kvbind.bank.passages import Passages
from kvbind.bank.store import DirectoryStore, Record, Store
from kvbind.errors import DocumentError
from kvbind.types import Chunk, Document, Passage


class Bank:
    """Compiled passages, the documents they come from, and what was computed about them.

    One bank may be used by several threads, and one folder by several processes. `damage` collects a line for
    every damaged record that was met; such a record is put aside and is a miss from then on.
    """

    def __init__(self, store: Store, catalogue: Catalogue, hot_bytes: int) -> None:
        self.store, self.catalogue = store, catalogue
        self.memos, self.passages = Memos(catalogue.database), Passages(store, hot_bytes)
        self.damage = self.passages.damage

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

        A new version drops the passages of the one before, unless another document has them too. Raises DocumentError
        if the id is empty, the text is empty or blank, or one of them is not valid Unicode.
        """
        with self.catalogue.transaction():
            version, stale = self.catalogue.put_document(document)
            self.passages.drop(stale or [])
        if version > 1 and stale is not None:
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

    def document_digests(self) -> list[tuple[str, str]]:
        """The id and text digest of every document, sorted by id; reads no text."""
        return self.catalogue.document_digests()

    def records_of(self, document_id: str) -> dict[str, str]:
        """The keys of a document's records, each with what it holds: `text` or `text, anchors`, for instance."""
        return self.catalogue.records_of(document_id)

    def remove(self, document_id: str) -> int:
        """Remove a document with its text, links, vectors, page lengths, and records that no other document has.

        Returns the bytes of the records. Raises DocumentError.
        """
        return self.remove_all([document_id])

    def remove_all(self, ids: Iterable[str]) -> int:
        """Remove documents as `remove` does, but empty the log once for all; returns the bytes of the records.

        Raises DocumentError, before anything is removed, if one of them is unknown.
        """
        wanted = list(dict.fromkeys(ids))
        for document_id in wanted:
            if not self.catalogue.has_document(document_id):
                raise self._unknown(document_id)
        try:
            return sum(map(self._remove, wanted))
        finally:
            self.catalogue.flush()

    def _remove(self, document_id: str) -> int:
        with self.catalogue.transaction():
            # Inside the transaction: nobody can link one of these records before it is gone.
            return self.passages.drop(self.catalogue.remove(document_id))

    def put(self, passage: Passage, *, chunk: Chunk, representation: str, write: str) -> int:
        """Store a passage unless it is there, link it to its chunk, and return the record's bytes.

        Nothing is stored, and 0 returned, if its document has a newer version than the chunk was cut from. Raises
        DocumentError if the document is not in the bank, BankError if the passage cannot be written.
        """
        key = passage.key
        # Linked before it is written, so that no removal elsewhere takes it for an orphan in between.
        state = self.catalogue.link(key, chunk, representation, write, passage.rows, 0)
        if state == "stale":
            return 0
        try:
            size = self.passages.put(passage)
        except BaseException:
            if state == "new" and not self.has(key):
                self.catalogue.unlink(key, chunk, representation, write)
            raise
        with self.catalogue.transaction():
            self.catalogue.set_bytes(key, size)
            if self.catalogue.linked_by(key):
                return size
            self.passages.drop([key])  # its document was removed, or changed, while it was written
            return 0

    def put_head(self, passage: Passage) -> None:
        """Store a model's native head, which belongs to no document, unless it is there."""
        self.catalogue.add_head(passage.key, passage.rows)
        self.passages.put(passage)

    def link(self, key: str, chunk: Chunk, representation: str, write: str) -> bool:
        """Link a stored passage to another chunk; false if it cannot be read, or the chunk is of an older version.

        Raises DocumentError if the chunk's document is not in the bank.
        """
        with self.catalogue.transaction():
            record = self.open_record(key)
            if record is None:
                return False
            rows, size = int(record.meta.get("rows", 0)), self.store.size(key) or 0
            record.close()
            return self.catalogue.link(key, chunk, representation, write, rows, size) != "stale"

    def ensure_link(self, key: str, chunk: Chunk, representation: str, write: str, rows: int) -> None:
        """Link a passage of `rows` rows that was just served to a chunk, if it is not; its record is not opened.

        Nothing is linked if the chunk was cut from an older version, or if the record has gone since. Raises
        DocumentError if the chunk's document is not in the bank.
        """
        if self.catalogue.is_linked(key, chunk, representation, write):
            return
        with self.catalogue.transaction():
            size = self.store.size(key)
            if size is not None:
                self.catalogue.link(key, chunk, representation, write, rows, size)

    def get(self, key: str) -> Passage | None:
        """A passage, verified whole, or None. Its tensors are shared: do not write to them.

        A damaged record is put aside, noted in `damage`, and None: compile the chunk again.
        """
        return self.passages.get(key)

    def peek(self, key: str) -> Passage | None:
        """As `get`, but keys and values may stay in the record: each layer is read, and verified, when it is asked for.

        Reading one may raise DamagedRecordError; `get` of the same key then puts the record aside.
        """
        return self.passages.peek(key)

    def warm(self, passage: Passage, epoch: int) -> None:
        """Keep a passage in memory whose reading, layer by layer, began at `hot_epoch`; not if that is over."""
        self.passages.warm(passage, epoch)

    @property
    def hot_epoch(self) -> int:
        """How often what is kept in memory was forgotten as a whole."""
        return self.passages.hot.epoch

    def keeps_hot(self, size: int) -> bool:
        """Whether a passage of so many bytes would be kept in memory."""
        return size <= self.passages.hot.capacity

    def has(self, key: str) -> bool:
        """Whether a record is there; it is not read."""
        return self.passages.has(key)

    def open_record(self, key: str) -> Record | None:
        """A record to be read one tensor, or one layer, at a time, or None; close it when done.

        Its `tensor` and `part` raise DamagedRecordError; `get` of the same key then puts the record aside.
        """
        return self.passages.open(key)

    def vectors(self, texts: Sequence[str], embedder: str) -> list[Tensor | None]:
        """The stored vector (d,) of each text, float32, or None."""
        return self.memos.vectors(texts, embedder)

    def document_vectors(self, embedder: str) -> tuple[list[str], Tensor | None, list[str]]:
        """Ids and vectors (N, d) of the documents that have one, None if none has, and the ids of those without."""
        return self.memos.document_vectors(embedder)

    def put_vectors(self, texts: Sequence[str], embedder: str, vectors: Tensor) -> None:
        """Store one vector for each text: `vectors` (N, d). They stay while a document or chunk has that text."""
        self.memos.put_vectors(texts, embedder, vectors)

    def page_lengths(self, text_digest: str, renderer_digest: str) -> list[int] | None:
        """How many characters each page of a text holds, or None if that is not known yet."""
        return self.memos.page_lengths(text_digest, renderer_digest)

    def put_page_lengths(self, text_digest: str, renderer_digest: str, lengths: Sequence[int]) -> None:
        """Keep how many characters each page of a text holds, while a document has that text."""
        self.memos.put_page_lengths(text_digest, renderer_digest, lengths)

    def models(self) -> dict[str, dict[str, Any]]:
        """The facts of every model that the bank holds passages of, by their digest."""
        return self.memos.models()

    def add_model(self, digest: str, facts: Mapping[str, Any]) -> None:
        """Note a model, in place of what was noted under its digest: anything that JSON can hold."""
        self.memos.add_model(digest, facts)

    def get_setting(self, name: str, default: Any = None) -> Any:
        """A setting kept in the bank, or `default`."""
        return self.memos.setting(name, default)

    def set_setting(self, name: str, value: Any) -> None:
        """Keep a setting in the bank: anything that JSON can hold."""
        self.memos.put_setting(name, value)

    def stats(self) -> audit.BankStats:
        """What the bank holds, and how often it was asked since it was opened."""
        return audit.stats(self.passages, self.catalogue)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> list[str]:
        """Read every record in full and return a line for each fault; damaged records are put aside.

        `progress` is called with how many records are done and how many there are.
        """
        return audit.verify(self.passages, self.catalogue, progress)

    def prune(self) -> int:
        """Delete records (also quarantined), vectors and page lengths that no document has; returns records' bytes."""
        with self.catalogue.transaction():
            owned = self.catalogue.linked().keys() | self.catalogue.heads()
            self.catalogue.sweep()
            freed = self.passages.drop(sorted({*self.store.keys(), *self.store.quarantined()} - owned))
        self.catalogue.flush()
        return freed

    def close(self) -> None:
        """Close the catalogue and forget the hot passages."""
        self.passages.hot.clear()
        self.catalogue.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
