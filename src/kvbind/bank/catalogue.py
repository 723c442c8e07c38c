"""What the bank knows besides records: documents, which passages are theirs, vectors and settings."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kvbind.bank.database import Database
from kvbind.bank.keys import FORMAT
from kvbind.errors import BankError, DocumentError, KvbindError
from kvbind.types import Chunk, Document, text_digest

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    id TEXT PRIMARY KEY, version INTEGER NOT NULL, digest TEXT NOT NULL, text BLOB NOT NULL,
    characters INTEGER NOT NULL, metadata TEXT NOT NULL, added_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS links (
    document_id TEXT NOT NULL, version INTEGER NOT NULL, chunk INTEGER NOT NULL, representation TEXT NOT NULL,
    write TEXT NOT NULL, key TEXT NOT NULL, text_digest TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL,
    PRIMARY KEY (document_id, version, chunk, representation, write, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS links_by_key ON links (key);
CREATE TABLE IF NOT EXISTS vectors (
    text_digest TEXT NOT NULL, embedder TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (text_digest, embedder)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heads (key TEXT PRIMARY KEY, rows INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
"""
_PLACE = "document_id = ? AND version = ? AND chunk = ? AND representation = ? AND write = ? AND key = ?"


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
    """The bank's tables, in the file `path` or in ":memory:". Every method raises BankError if SQLite cannot go on."""

    def __init__(self, path: str) -> None:
        self._database = Database(path, _SCHEMA, FORMAT)
        self.transaction = self._database.transaction
        self.close = self._database.close
        self._rows = self._database.rows

    def put_document(self, document: Document) -> tuple[int, list[str]]:
        """Store a document; returns its version, and the keys that only an earlier version was linked to."""
        metadata = _json(document.metadata, f"the metadata of document {document.id!r}", DocumentError)
        text = document.text.encode("utf-8", "surrogatepass")
        with self.transaction():
            found = self._rows("SELECT version, digest FROM documents WHERE id = ?", [document.id])
            version, digest = found[0] if found else (0, None)
            if digest == document.digest:
                self._rows("UPDATE documents SET metadata = ? WHERE id = ?", [metadata, document.id])
                return int(version), []
            stale = self.remove(document.id) if found else []
            self._rows(
                "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)",
                [document.id, version + 1, document.digest, text, len(document.text), metadata, time.time()],
            )
            return int(version) + 1, stale

    def document(self, document_id: str) -> Document | None:
        """The current version of a document."""
        found = self._rows("SELECT text, metadata FROM documents WHERE id = ?", [document_id])
        if not found:
            return None
        text, metadata = found[0]
        return Document(document_id, text.decode("utf-8", "surrogatepass"), json.loads(metadata))

    def document_ids(self) -> list[str]:
        """The ids of all documents, sorted."""
        return [row[0] for row in self._rows("SELECT id FROM documents ORDER BY id")]

    def documents(self) -> list[DocumentInfo]:
        """All documents, sorted by id."""
        found = self._rows(
            "SELECT id, d.version, digest, characters, count(key), ifnull(sum(rows), 0), ifnull(sum(bytes), 0), "
            "metadata FROM documents d LEFT JOIN "
            "(SELECT document_id, key, max(rows) AS rows, max(bytes) AS bytes FROM links "
            "GROUP BY document_id, key) ON document_id = id GROUP BY id ORDER BY id"
        )
        return [DocumentInfo(*(*row[:-1], json.loads(row[-1]))) for row in found]

    def remove(self, document_id: str) -> list[str]:
        """Forget a document; returns the keys that no other document is linked to."""
        with self.transaction():
            found = self._rows("SELECT DISTINCT key FROM links WHERE document_id = ?", [document_id])
            self._rows("DELETE FROM links WHERE document_id = ?", [document_id])
            self._rows("DELETE FROM documents WHERE id = ?", [document_id])
            self._rows(
                "DELETE FROM vectors WHERE text_digest NOT IN "
                "(SELECT digest FROM documents UNION SELECT text_digest FROM links)"
            )
            return [key for (key,) in found if not self.linked_by(key)]

    def link(self, key: str, chunk: Chunk, representation: str, write: str, rows: int, size: int) -> bool:
        """Say that a chunk of a document's current version is compiled under `key`; false if that was known.

        Raises DocumentError where the document is unknown.
        """
        with self.transaction():
            found = self._rows("SELECT version FROM documents WHERE id = ?", [chunk.document_id])
            if not found:
                raise DocumentError(f"no document {chunk.document_id!r} in the bank: put the document first")
            place = [chunk.document_id, found[0][0], chunk.index, representation, write, key]
            if self._rows(f"SELECT 1 FROM links WHERE {_PLACE}", place):
                return False
            self._rows(
                "INSERT INTO links VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [*place, text_digest(chunk.text), rows, size]
            )
            return True

    def unlink(self, key: str, chunk: Chunk, representation: str, write: str) -> None:
        """Take back one link."""
        self._rows(
            "DELETE FROM links WHERE key = ? AND document_id = ? AND chunk = ? AND representation = ? AND write = ?",
            [key, chunk.document_id, chunk.index, representation, write],
        )

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

    def vectors(self, digests: Iterable[str], embedder: str) -> list[bytes | None]:
        """The stored vector of each text, as float32 bytes."""
        statement = "SELECT vector FROM vectors WHERE text_digest = ? AND embedder = ?"
        found = (self._rows(statement, [digest, embedder]) for digest in digests)
        return [rows[0][0] if rows else None for rows in found]

    def document_vectors(self, embedder: str) -> list[tuple[str, str, bytes | None]]:
        """Every document's id, text digest and vector, sorted by id."""
        return self._rows(
            "SELECT id, digest, vector FROM documents LEFT JOIN vectors ON text_digest = digest AND embedder = ? "
            "ORDER BY id",
            [embedder],
        )

    def put_vectors(self, digests: Iterable[str], embedder: str, vectors: Iterable[bytes]) -> None:
        """Store one vector for each text."""
        with self.transaction():
            for digest, vector in zip(digests, vectors, strict=True):
                self._rows("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", [digest, embedder, vector])

    def setting(self, name: str, default: Any) -> Any:
        """A setting's value, or `default`."""
        found = self._rows("SELECT value FROM settings WHERE key = ?", [name])
        return json.loads(found[0][0]) if found else default

    def put_setting(self, name: str, value: Any) -> None:
        """Store a setting, which must be JSON."""
        text = _json(value, f"the setting {name!r}", BankError)
        self._rows("INSERT OR REPLACE INTO settings VALUES (?, ?)", [name, text])

    def check(self) -> list[str]:
        """What SQLite finds wrong with the file, in lines."""
        return [line for (line,) in self._rows("PRAGMA quick_check") if line != "ok"]

    def flush(self) -> None:
        """Empty the write-ahead log into the file, so that no removed text stays in the log."""
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _json(value: Any, what: str, error_type: type[KvbindError]) -> str:
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value)
    except (TypeError, ValueError) as error:
        raise error_type(f"{what} is not JSON ({error}): use strings, numbers, lists and mappings") from error
