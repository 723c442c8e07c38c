"""One SQLite file, shared by processes and threads, with errors that name the mend."""

import json
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kvbind.errors import BankError, DocumentError, KvbindError

_BUSY_SECONDS = 60.0
_DAMAGED = "it is damaged: delete it and compile the documents again; stored passages will be found"
_MENDS = {
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_BUSY: "another process holds it: try again when that one is done",
    sqlite3.SQLITE_FULL: "free some space or choose another bank; what was stored before is untouched",
}


class Database:
    """A connection to one file or to ":memory:", with at least the tables of `schema`, at version `version`.

    Raises BankError when SQLite cannot go on, or when the file was written by a newer version.
    """

    def __init__(self, path: str, schema: str, version: int) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._errors():
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._closer = weakref.finalize(self, self._connection.close)
            # Freed pages are overwritten: what was removed must not stay readable in the file.
            self._connection.execute("PRAGMA secure_delete = ON")
            self._enter_wal()
            self._connection.execute("PRAGMA synchronous = NORMAL")
        self._create(schema, version)

    def _enter_wal(self) -> None:
        """Switch the file to write-ahead logging; SQLite does not always wait its timeout for this one lock."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _create(self, schema: str, version: int) -> None:
        with self.transaction():
            (found,) = self.rows("PRAGMA user_version")[0]
            if found > version:
                raise BankError(
                    f"the catalogue {self.path} has format {found}, newer than this kvbind's {version}: upgrade kvbind"
                )
            # On every open: the file may be older than one of the tables or indexes.
            for statement in schema.split(";"):
                self.rows(statement)
            if found < version:
                self.rows(f"PRAGMA user_version = {version}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # The low byte is the kind; the rest says where in SQLite it arose.
            kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
            mend = _MENDS.get(kind, "check that its folder is there and writable, and open the bank again")
            raise BankError(f"cannot use the catalogue {self.path} ({error}): {mend}") from error
        except UnicodeEncodeError as error:
            raise DocumentError(f"{error.object!r} is not valid Unicode: rename it") from error

    def rows(self, statement: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with self._lock, self._errors():
            return self._connection.execute(statement, tuple(values)).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, while no other process writes; one inside another joins it."""
        with self._lock:
            if self._connection.in_transaction:
                yield
                return
            self.rows("BEGIN IMMEDIATE")
            try:
                yield
                self.rows("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self.rows("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file; also done when the object is no longer referenced."""
        self._closer()


def to_json(value: Any, what: str, error_type: type[KvbindError] = BankError) -> str:
    """`value` as JSON; raises `error_type` if JSON cannot hold it."""
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value)
    except (TypeError, ValueError) as error:
        raise error_type(f"{what} is not JSON ({error}): use strings, numbers, lists and mappings") from error
