"""What the bank knows besides records: documents, and which passages are theirs."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kvbind.bank.database import Database, to_json
from kvbind.bank.keys import FORMAT
from kvbind.bank.schema import SCHEMA, TEXT_TABLES
from kvbind.errors import DocumentError
from kvbind.types import Chunk, Document, text_digest

_PLACE = "key = ? AND document_id = ? AND chunk = ? AND representation = ? AND write = ?"


@dataclass(frozen=True)
class DocumentInfo:
    """One line of a bank's list of documents; `rows` and `bytes` are sums over its passages."""

    id: str
    version: int
    digest: str
    characters: int
    passages: int
    rows: int
    bytes: int
    metadata: Mapping[str, Any]


class Catalogue:
    """Documents and links, in a file or in ":memory:". Every method raises BankError if SQLite cannot go on."""

    def __init__(self, path: str) -> None:
        self.database = Database(path, SCHEMA, FORMAT)
        self.transaction = self.database.transaction
        self.close = self.database.close
        self._rows = self.database.rows

    def put_document(self, document: Document) -> tuple[int, list[str] | None]:
        """Store a document; returns its version, and the keys that only an earlier version was linked to.

        None in place of the keys says that this very text was there. Raises DocumentError for an empty id or text, and
        for what is not Unicode or JSON.
        """
        text, digest = checked_text(document), document.digest
        metadata = to_json(document.metadata, f"the metadata of document {document.id!r}", DocumentError)
        with self.transaction():
            found = self._rows("SELECT version, digest FROM documents WHERE id = ?", [document.id])
            version, before = found[0] if found else (0, None)
            if before == digest:
                self._rows("UPDATE documents SET metadata = ? WHERE id = ?", [metadata, document.id])
                return int(version), None
            stale = self.remove(document.id) if found else []
            self._rows(
                "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)",
                [document.id, version + 1, digest, text, len(document.text), metadata, time.time()],
            )
            return int(version) + 1, stale

    def document(self, document_id: str) -> Document | None:
        """The current version of a document."""
        found = self._rows("SELECT text, metadata FROM documents WHERE id = ?", [document_id])
        if not found:
            return None
        text, metadata = found[0]
        return Document(document_id, text.decode("utf-8"), json.loads(metadata))

    def has_document(self, document_id: str) -> bool:
        """Whether there is a document of that id."""
        return bool(self._rows("SELECT 1 FROM documents WHERE id = ?", [document_id]))

    def document_digests(self) -> list[tuple[str, str]]:
        """The id and text digest of every document, sorted by id."""
        return self._rows("SELECT id, digest FROM documents ORDER BY id")

    def document_ids(self) -> list[str]:
        """The ids of all documents, sorted."""
        return [row[0] for row in self._rows("SELECT id FROM documents ORDER BY id")]

    def documents(self) -> list[DocumentInfo]:
        """All documents, sorted by id; companions of their passages count in bytes alone."""
        found = self._rows(
            "SELECT id, d.version, digest, characters, count(rows), ifnull(sum(rows), 0), ifnull(sum(bytes), 0), "
            "metadata FROM documents d LEFT JOIN "
            "(SELECT document_id, key, max(CASE WHEN representation NOT LIKE '%, %' THEN rows END) AS rows, "
            "max(bytes) AS bytes FROM links GROUP BY document_id, key) ON document_id = id GROUP BY id ORDER BY id"
        )
        return [DocumentInfo(*(*row[:-1], json.loads(row[-1]))) for row in found]

    def records_of(self, document_id: str) -> dict[str, str]:
        """The keys that a document is linked to, each with its representation."""
        return dict(self._rows("SELECT key, representation FROM links WHERE document_id = ?", [document_id]))

    def remove(self, document_id: str) -> list[str]:
        """Forget a document; returns the keys that no other document is linked to."""
        with self.transaction():
            keys = self._rows("SELECT DISTINCT key FROM links WHERE document_id = ?", [document_id])
            texts = self._rows(
                "SELECT digest FROM documents WHERE id = ? UNION SELECT text_digest FROM links WHERE document_id = ?",
                [document_id, document_id],
            )
            self._rows("DELETE FROM links WHERE document_id = ?", [document_id])
            self._rows("DELETE FROM documents WHERE id = ?", [document_id])
            for (digest,) in texts:
                self._forget_text(digest)
            return [key for (key,) in keys if not self.linked_by(key)]

    def _forget_text(self, digest: str) -> None:
        owners = "SELECT 1 FROM documents WHERE digest = ? UNION ALL SELECT 1 FROM links WHERE text_digest = ? LIMIT 1"
        if not self._rows(owners, [digest, digest]):
            for table in TEXT_TABLES:
                self._rows(f"DELETE FROM {table} WHERE text_digest = ?", [digest])

    def sweep(self) -> None:
        """Forget what was computed about texts that no document or link has; reads whole tables."""
        with self.transaction():
            for table in TEXT_TABLES:
                self._rows(
                    f"DELETE FROM {table} WHERE text_digest NOT IN "
                    "(SELECT digest FROM documents UNION SELECT text_digest FROM links)"
                )

    def link(
        self, key: str, chunk: Chunk, representation: str, write: str, rows: int, size: int
    ) -> Literal["new", "known", "stale"]:
        """Say that a chunk of a document's current version is compiled under `key`.

        A chunk that was cut from another version is "stale", and not linked. Raises DocumentError where the document
        is unknown.
        """
        with self.transaction():
            found = self._rows("SELECT version, digest FROM documents WHERE id = ?", [chunk.document_id])
            if not found:
                raise DocumentError(f"no document {chunk.document_id!r} in the bank: put the document first")
            version, digest = found[0]
            if chunk.document_digest not in ("", digest):
                return "stale"
            if self.is_linked(key, chunk, representation, write):
                return "known"
            place = [chunk.document_id, version, chunk.index, representation, write, key]
            self._rows(
                "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [*place, text_digest(chunk.text), rows, size]
            )
            return "new"

    def is_linked(self, key: str, chunk: Chunk, representation: str, write: str) -> bool:
        """Whether a chunk of the document's current version is compiled under `key`: earlier ones have no links."""
        place = [key, chunk.document_id, chunk.index, representation, write]
        return bool(self._rows(f"SELECT 1 FROM links WHERE {_PLACE}", place))

    def unlink(self, key: str, chunk: Chunk, representation: str, write: str) -> None:
        """Take back one link."""
        place = [key, chunk.document_id, chunk.index, representation, write]
        self._rows(f"DELETE FROM links WHERE {_PLACE}", place)

    def set_bytes(self, key: str, size: int) -> None:
        """Note how many bytes a passage takes."""
        self._rows("UPDATE links SET bytes = ? WHERE key = ?", [size, key])

    def add_head(self, key: str, rows: int) -> None:
        """Say that a record is a model's native head, which belongs to no document."""
        self._rows("INSERT OR IGNORE INTO heads VALUES (?, ?)", [key, rows])

    def heads(self) -> set[str]:
        """The keys of all heads."""
        return {key for (key,) in self._rows("SELECT key FROM heads")}

    def linked(self) -> dict[str, int]:
        """The keys of all linked passages, with their rows; heads are not among them."""
        return dict(self._rows("SELECT key, max(rows) FROM links GROUP BY key ORDER BY key"))

    def linked_by(self, key: str) -> list[str]:
        """The ids of the documents that a passage belongs to."""
        return [i for (i,) in self._rows("SELECT DISTINCT document_id FROM links WHERE key = ? ORDER BY 1", [key])]

    def check(self) -> list[str]:
        """What SQLite finds wrong with the file, in lines."""
        return [line for (line,) in self._rows("PRAGMA quick_check") if line != "ok"]

    def flush(self) -> None:
        """Empty the write-ahead log into the file, so that no removed text stays in the log."""
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")


def checked_text(document: Document) -> bytes:
    """The document's text in UTF-8; raises DocumentError if it cannot be kept."""
    name = f"document {document.id!r}"
    if not document.id:
        raise DocumentError(f"{name} has an empty id: give it one")
    if not document.text.strip():
        raise DocumentError(f"{name} has no text: leave it out, or give it some")
    try:
        document.id.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DocumentError(f"{name} has an id that is not valid Unicode ({error.reason}): rename it") from error
    try:
        return document.text.encode("utf-8")
    except UnicodeEncodeError as error:
        where = f"character {error.start}: {error.reason}"
        raise DocumentError(f"{name} is not valid Unicode ({where}): decode its source again, or replace it") from error
