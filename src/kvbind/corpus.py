"""Documents from the files and folders that a user names."""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvbind.errors import DocumentError
from kvbind.types import Document

TEXT_SUFFIXES = frozenset({".txt", ".text", ".md", ".rst", ""})
JSONL_SUFFIXES = frozenset({".jsonl", ".ndjson"})
KNOWN = ".txt, .text, .md, .rst, .jsonl, .ndjson or no suffix"
NOT_TEXT = "if it is a PDF or an office file, extract its text first; otherwise save it as UTF-8"


def read_documents(paths: Iterable[str | Path]) -> Iterator[Document]:
    """Documents of text files, JSON Lines files and folders, one at a time, in the order named.

    Text files are UTF-8; line ends become ``\\n``. A JSON Lines file holds one object a line: `text`; perhaps `id`
    (a string or an integer, by default file stem:line number) and `title`, which is put before the text; all
    other fields become metadata. Folders are read recursively in sorted order, without hidden entries, linked
    folders and unknown suffixes. A document's id is its path relative to the folder named, or the name of the
    file named. `metadata["source"]` says where it comes from: the path, and the line in JSON Lines.

    All paths are checked before the first document. The same text under the same id is passed over. Raises
    `DocumentError` for whatever cannot be read, is empty, is not text, or contradicts an earlier id.
    """
    roots = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    if not roots:
        raise DocumentError("no documents found: name at least one file or folder")
    folders = {root: stat.S_ISDIR(_mode(root)) for root in roots}
    seen: dict[str, tuple[str, str]] = {}  # id → digest, source
    for root in roots:
        for document in _folder(root) if folders[root] else _file(root, root.name):
            source = document.metadata["source"]
            if document.id not in seen:
                seen[document.id] = document.digest, source
                yield document
            elif seen[document.id][0] != document.digest:
                problem = f'has the id "{document.id}" of {seen[document.id][1]}, but another text'
                raise _error(source, problem, "give one of them another id, or name the folder that holds both")


def _error(place: str | Path, problem: str, mend: str) -> DocumentError:
    """One printable line, whatever bytes the names are made of."""
    line = f"{place}: {problem}: {mend}".replace("\r", "\\r").replace("\n", "\\n")
    return DocumentError(line.encode("utf-8", "backslashreplace").decode())


def _mode(path: Path) -> int:
    """File type of a path that a user named: a regular file or a folder."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _error(path, "not found", "check the path") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise _error(path, "neither a file nor a folder", "write its content to a file first")
    return mode


def _unreadable(path: Path, error: OSError) -> DocumentError:
    return _error(path, f"cannot be read ({error.strerror})", "check that you have permission to read it")


def _folder(root: Path) -> Iterator[Document]:
    others: Counter[str] = Counter()
    found = False
    for path in _files(root):
        if path.suffix.lower() in TEXT_SUFFIXES | JSONL_SUFFIXES:
            found = True
            yield from _file(path, path.relative_to(root).as_posix())
        else:
            others[path.suffix.lower()] += 1
    if not found:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in sorted(others.items()))
        raise _error(root, f"no documents found ({counts or 'no visible files'})", f"add files with {KNOWN}")


def _files(folder: Path) -> Iterator[Path]:
    """Visible regular files, depth first in the order of their names."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        # Linked folders are left out: they may contain themselves.
        kinds = [(folder / entry.name, entry.is_dir(follow_symlinks=False), entry.is_file()) for entry in entries]
    except OSError as error:
        raise _unreadable(folder, error) from error
    for path, is_folder, is_file in kinds:
        if path.name.startswith("."):
            continue
        if is_folder:
            yield from _files(path)
        elif is_file:
            yield path


def _file(path: Path, name: str) -> Iterator[Document]:
    """Documents of one file, known as `name`."""
    if path.suffix.lower() in JSONL_SUFFIXES:
        for document in _jsonl(path, name.removesuffix(path.suffix)):
            yield _encodable(document)
        return
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    text = _decoded(data, path, 0)
    if path.suffix.lower() not in TEXT_SUFFIXES:
        raise _error(path, f"{path.suffix} files are not read", f"extract the text into a file with {KNOWN}")
    if not text.strip():
        raise _error(path, "empty", "give it some text or leave it out")
    yield _encodable(Document(name, text.replace("\r\n", "\n").replace("\r", "\n"), {"source": str(path)}))


def _decoded(data: bytes, place: str | Path, offset: int) -> str:
    """UTF-8 text without its byte order mark; `offset` is where in the file the data starts."""
    nul = data.find(b"\0")
    if nul >= 0:
        raise _error(place, f"not text (NUL at byte {offset + nul})", NOT_TEXT)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _error(place, f"not UTF-8 text (from byte {offset + error.start})", NOT_TEXT) from error
    return text if offset else text.removeprefix("\ufeff")


def _encodable(document: Document) -> Document:
    """The document, unless a half of a surrogate pair, which no tokenizer takes, hides in its id or text."""
    for what, value in (("id", document.id), ("text", document.text)):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            problem = f"character {error.start} of the {what} is a lone surrogate"
            raise _error(document.metadata["source"], problem, f"write the {what} in valid UTF-8") from error
    return document


def _jsonl(path: Path, stem: str) -> Iterator[Document]:
    offset, found = 0, False
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                place = f"{path}:{number}"
                content = _decoded(line, place, offset)
                offset += len(line)
                if content.strip():
                    found = True
                    yield _record(content, place, f"{stem}:{number}")
    except OSError as error:
        raise _unreadable(path, error) from error
    if not found:
        raise _error(path, "empty", "give it one JSON object a line or leave it out")


def _record(line: str, place: str, default_id: str) -> Document:
    """The document of one JSON line."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        problem = f"broken JSON ({error.msg} at column {error.colno})"
        raise _error(place, problem, "write one whole JSON object a line") from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, thousands of brackets
        raise _error(place, f"unusable JSON ({error})", "simplify the line") from error
    if not isinstance(record, dict):
        raise _error(place, "not a JSON object", 'write the line as in {"text": "..."}')
    text = _string(record, "text", place)
    if not text.strip():
        raise _error(place, '"text" is missing or empty', "give it some text or delete the line")
    if isinstance(record.get("id"), int) and not isinstance(record["id"], bool):
        record["id"] = str(record["id"])
    title = _string(record, "title", place)
    document = Document(_string(record, "id", place) or default_id, f"{title}\n{text}" if title.strip() else text)
    fields = {key: value for key, value in record.items() if key not in ("id", "title", "text")}
    return replace(document, metadata={**fields, "source": place})


def _string(record: dict[str, Any], key: str, place: str) -> str:
    """The string under a key; "" if there is none."""
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise _error(place, f'"{key}" is {json.dumps(value)[:40]}', "make it a string")
    return value or ""
