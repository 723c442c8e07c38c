"""What the bank keeps besides documents and passages: vectors and page lengths by text, models, and settings."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kvbind.bank.database import Database, to_json
from kvbind.errors import BankError
from kvbind.types import text_digest


class Memos:
    """Tables beside the catalogue's, in the same file; every method raises BankError if SQLite cannot go on."""

    def __init__(self, database: Database) -> None:
        self._rows, self._transaction = database.rows, database.transaction

    def vectors(self, texts: Sequence[str], embedder: str) -> list[Tensor | None]:
        """The vector (d,) of each text, float32, or None."""
        statement = "SELECT vector FROM vectors WHERE text_digest = ? AND embedder = ?"
        found = [self._rows(statement, [text_digest(text), embedder]) for text in texts]
        return [torch.frombuffer(bytearray(rows[0][0]), dtype=torch.float32) if rows else None for rows in found]

    def document_vectors(self, embedder: str) -> tuple[list[str], Tensor | None, list[str]]:
        """Ids and vectors (N, d) of the documents that have one, None if none has, and the ids of those without."""
        rows = self._rows(
            "SELECT id, vector FROM documents LEFT JOIN vectors ON text_digest = digest AND embedder = ? ORDER BY id",
            [embedder],
        )
        known = [(identifier, blob) for identifier, blob in rows if blob is not None]
        lacking = [identifier for identifier, blob in rows if blob is None]
        joined = bytearray().join(blob for _, blob in known)
        vectors = torch.frombuffer(joined, dtype=torch.float32).reshape(len(known), -1) if known else None
        return [identifier for identifier, _ in known], vectors, lacking

    def put_vectors(self, texts: Sequence[str], embedder: str, vectors: Tensor) -> None:
        """Store one vector for each text: `vectors` (N, d)."""
        if len(texts) != len(vectors):
            raise BankError(f"{len(texts)} texts but {len(vectors)} vectors of {embedder}: give one for each text")
        blobs = vectors.detach().to("cpu", torch.float32).contiguous().numpy()
        with self._transaction():
            for text, blob in zip(texts, blobs, strict=True):
                row = [text_digest(text), embedder, blob.tobytes()]
                self._rows("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", row)

    def page_lengths(self, digest: str, renderer_digest: str) -> list[int] | None:
        """How many characters each page of a text holds, or None."""
        statement = "SELECT lengths FROM page_lengths WHERE text_digest = ? AND renderer = ?"
        found = self._rows(statement, [digest, renderer_digest])
        return [int(length) for length in json.loads(found[0][0])] if found else None

    def put_page_lengths(self, digest: str, renderer_digest: str, lengths: Sequence[int]) -> None:
        """Store the page lengths of a text."""
        row = [digest, renderer_digest, to_json(list(lengths), f"the list of page lengths of {digest}")]
        self._rows("INSERT OR REPLACE INTO page_lengths VALUES (?, ?, ?)", row)

    def models(self) -> dict[str, dict[str, Any]]:
        """The facts of every model noted, by their digest."""
        return {digest: json.loads(facts) for digest, facts in self._rows("SELECT * FROM models ORDER BY digest")}

    def add_model(self, digest: str, facts: Mapping[str, Any]) -> None:
        """Note one model and leave the others as they are."""
        row = [digest, to_json(facts, f"what is noted of model {digest}")]
        self._rows("INSERT OR REPLACE INTO models VALUES (?, ?)", row)

    def setting(self, name: str, default: Any) -> Any:
        """A setting's value, or `default`."""
        found = self._rows("SELECT value FROM settings WHERE key = ?", [name])
        return json.loads(found[0][0]) if found else default

    def put_setting(self, name: str, value: Any) -> None:
        """Store a setting, which must be JSON."""
        text = to_json(value, f"the setting {name!r}")
        self._rows("INSERT OR REPLACE INTO settings VALUES (?, ?)", [name, text])
