import json
import os
from pathlib import Path
from typing import Any

import pytest

from kvbind.corpus import read_documents
from kvbind.errors import DocumentError
from kvbind.types import Document


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def jsonl(path: Path, *records: Any) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def read(*paths: str | Path) -> list[Document]:
    return list(read_documents(paths))


def failure(*paths: str | Path) -> str:
    with pytest.raises(DocumentError) as caught:
        read(*paths)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.txt", "a.text", "a.md", "a.rst", "A.TXT", "README"])
def test_text_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "Größe 大小\n")
    assert read(path) == [Document(name, "Größe 大小\n", {"source": str(path)})]
    assert read(str(path)) == read(path) == list(read_documents(str(path)))


def test_byte_order_mark_and_line_ends_are_not_text(tmp_path: Path) -> None:
    [document] = read(write(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\rthree\n"))
    assert document.text == "one\ntwo\nthree\n"


def test_folder_is_read_in_sorted_order_without_hidden_and_unknown_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/y/x.rst", "c", ".hidden.txt", ".git/d.txt", "e.html", "f.py", "a/.g/h.txt"):
        write(tmp_path / name, name)
    jsonl(tmp_path / "a" / "set.jsonl", {"text": "first"}, {"text": "second", "id": "own"})
    assert [(document.id, document.text) for document in read(tmp_path)] == [
        ("a/set:1", "first"),
        ("own", "second"),
        ("a/y/x.rst", "a/y/x.rst"),
        ("a/z.md", "a/z.md"),
        ("b.txt", "b.txt"),
        ("c", "c"),
    ]


def test_linked_folders_are_left_out_and_linked_files_taken(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "a")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b.txt").symlink_to(tmp_path / "a.txt")
    assert [document.id for document in read(tmp_path)] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson"])
def test_json_lines(tmp_path: Path, suffix: str) -> None:
    lines = [
        {"text": "one"},
        {"id": "x", "title": "Title", "text": "two", "year": 1999, "source": "ignored"},
        {"id": 7, "text": "three\r\n\u2028four", "title": None},
    ]
    content = "\ufeff" + "\r\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
    path = write(tmp_path / f"set{suffix}", content)
    assert read(path) == [
        Document("set:1", "one", {"source": f"{path}:1"}),
        Document("x", "Title\ntwo", {"year": 1999, "source": f"{path}:3"}),
        Document("7", "three\r\n\u2028four", {"source": f"{path}:5"}),
    ]


def test_json_lines_are_streamed(tmp_path: Path) -> None:
    path = write(tmp_path / "set.jsonl", '{"text": "good"}\n' + "broken\n" * 3)
    documents = read_documents([path])
    assert next(documents).text == "good"  # before the broken line is looked at
    with pytest.raises(DocumentError, match="broken JSON"):
        next(documents)


def test_all_paths_are_checked_before_the_first_document(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="missing"):
        next(read_documents([write(tmp_path / "a.txt", "a"), tmp_path / "missing.txt"]))


def test_same_text_under_one_id_is_passed_over(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1" / "a.txt", "same"), write(tmp_path / "2" / "a.txt", "same")
    [document] = read(one, two, one, one.parent, two.parent)
    assert document.metadata["source"] == str(one)


def test_another_text_under_one_id_names_both_places(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1" / "a.txt", "one"), write(tmp_path / "2" / "a.txt", "two")
    message = failure(one, two)
    assert str(one) in message
    assert str(two) in message
    assert 'id "a.txt"' in message
    assert [document.id for document in read(tmp_path)] == ["1/a.txt", "2/a.txt"]  # what the message proposes
    path = jsonl(tmp_path / "set.jsonl", {"id": "a", "text": "one"}, {"id": "a", "text": "two"})
    assert failure(path).startswith(f'{path}:2: has the id "a" of {path}:1')


BAD_TEXT = [
    ("a.txt", b"", "empty"),
    ("a.txt", b" \r\n\t\xc2\xa0", "empty"),
    ("a.txt", b"\xef\xbb\xbf", "empty"),
    ("a.txt", b"abc\0def", "NUL at byte 3"),
    ("a.txt", b"\xef\xbb\xbfab\xff", "from byte 5"),
    ("a.txt", "grün".encode("latin-1"), "from byte 2"),
    ("a.txt", "text".encode("utf-16"), "NUL at byte 3"),
    ("a.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "PDF or an office file, extract its text first"),
    ("a.html", b"<p>text</p>", ".html files are not read: extract the text"),
    ("a.jsonl", b"\n \n", "empty"),
]


@pytest.mark.parametrize(("name", "content", "problem"), BAD_TEXT)
def test_bad_file(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    path = write(tmp_path / name, content)
    message = failure(path)
    assert message.startswith(f"{path}: ")
    assert problem in message


BAD_LINES = [
    (b'{"text": "a', "broken JSON (Invalid control character at at column 12)"),
    (b"{'text': 1}", "broken JSON"),
    (b'"text"', "not a JSON object"),
    (b"null", "not a JSON object"),
    (b'{"id": "a"}', '"text" is missing or empty'),
    (b'{"text": null}', '"text" is missing or empty'),
    (b'{"text": " \\n"}', '"text" is missing or empty'),
    (b'{"text": ["a"]}', '"text" is ["a"]: make it a string'),
    (b'{"text": "a", "id": 1.5}', '"id" is 1.5: make it a string'),
    (b'{"text": "a", "id": true}', '"id" is true: make it a string'),
    (b'{"text": "a", "title": 3}', '"title" is 3: make it a string'),
    (b'{"text": "a\\ud800"}', "character 1 of the text is a lone surrogate"),
    (b'{"text": "a", "id": "\\udfff"}', "character 0 of the id is a lone surrogate"),
    (b'{"text": "\xff"}', "not UTF-8 text (from byte 28)"),
    (b'{"text": "\0"}', "not text (NUL at byte 28)"),
    (b"[" * 200_000, "unusable JSON"),
    (b'{"text": "a", "n": ' + b"1" * 5000 + b"}", "unusable JSON"),
]


@pytest.mark.parametrize(("line", "problem"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_bad_line(tmp_path: Path, line: bytes, problem: str) -> None:
    path = write(tmp_path / "set.jsonl", b'{"text": "good"}\n\n' + line + b"\n")
    message = failure(path)
    assert message.startswith(f"{path}:3: ")
    assert problem in message


def test_nothing_to_read(tmp_path: Path) -> None:
    assert "no documents found: name at least one" in failure()
    assert failure(tmp_path / "nowhere") == f"{tmp_path}/nowhere: not found: check the path"
    assert "not found" in failure(write(tmp_path / "a.txt", "a") / "b.txt")
    (tmp_path / "empty").mkdir()
    assert "no documents found (no visible files)" in failure(tmp_path / "empty")
    for name in ("1.pdf", "2.PDF", "3.html", ".4.txt"):
        write(tmp_path / "others" / name, "x")
    assert "no documents found (1 .html, 2 .pdf)" in failure(tmp_path / "others")


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in failure(tmp_path / "pipe")


@pytest.mark.parametrize(("owner", "call", "name"), [(Path, "read_bytes", "a.txt"), (Path, "open", "a.jsonl")])
def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, call: str, name: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / name, '{"text": "a"}')
    monkeypatch.setattr(owner, call, refuse)  # permission bits do not stop the superuser
    assert failure(path) == f"{path}: cannot be read (Permission denied): check that you have permission to read it"


def test_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    assert failure(tmp_path).startswith(f"{tmp_path}: cannot be read (Permission denied)")


def test_messages_stay_printable_and_on_one_line(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xffname\n.txt")
    message = failure(write(tmp_path / name, "text"))
    assert r"bad\udcffname\n.txt" in message
    assert "lone surrogate" in message
