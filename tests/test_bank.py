import dataclasses
import errno
import hashlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from kvbind.bank import FORMAT, Bank, DirectoryStore, MemoryStore, content_key, keys, recordfile
from kvbind.errors import BankError, DamagedRecordError, DocumentError
from kvbind.types import Chunk, Document, Passage, StackedKV

LAYERS, HEADS, ROWS, DIM = 3, 2, 5, 4


def key_of(name):
    return content_key({"name": name})


def passage(name, rows=ROWS, dtype=torch.bfloat16):
    """A passage whose numbers follow from its name."""
    seed = int(key_of(name)[:8], 16)
    keys, values = torch.randn(2, LAYERS, HEADS, rows, DIM, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return Passage(
        key=key_of(name),
        ids=torch.arange(rows) + seed,
        positions=torch.arange(3 * rows).view(3, rows),
        span=rows + 2,
        origin=17,
        kv=StackedKV(keys, values),
        extras={"anchor": torch.tensor([0, rows - 1]), "image": torch.arange(rows) % 2 == 0},
    )


def put(bank, name, document="a", index=0, **options):
    chunk = Chunk(document, index, f"chunk {index}")
    return bank.put(passage(name, **options), chunk=chunk, representation="text", write="bare")


class Lists:
    """Keys and values of each layer in tensors of their own."""

    def __init__(self, keys, values):
        self.layers, self.k, self.v = len(keys), keys.__getitem__, values.__getitem__


def identical(left, right):
    """Equal bit for bit, type and shape included."""
    same_kind = left.dtype == right.dtype and left.shape == right.shape
    return same_kind and torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))


def assert_same(found, wanted):
    assert (found.key, found.span, found.origin, found.rows) == (wanted.key, wanted.span, wanted.origin, wanted.rows)
    assert identical(found.ids, wanted.ids)
    assert identical(found.positions, wanted.positions)
    for layer in range(LAYERS):
        assert identical(found.kv.k(layer), wanted.kv.k(layer))
        assert identical(found.kv.v(layer), wanted.kv.v(layer))
    assert found.extras.keys() == wanted.extras.keys()
    assert all(identical(found.extras[name], tensor) for name, tensor in wanted.extras.items())


def file_of(folder, name):
    return Path(folder) / "passages" / key_of(name)[:2] / f"{key_of(name)}.safetensors"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "bank"


@pytest.fixture
def disk(folder):
    """A bank in a folder without a hot tier, with one document."""
    with Bank.open(folder, hot_bytes=0) as bank:
        bank.put_document(Document("a", "the text of a"))
        yield bank


@pytest.fixture(params=["memory", "folder"])
def bank(request, folder):
    """An empty bank of either kind."""
    with Bank.memory() if request.param == "memory" else Bank.open(folder) as bank:
        yield bank


# keys


def test_content_key_is_the_digest_of_canonical_json():
    facts = {"model": "m", "rope": {"theta": 1e6, "factors": [1, 2.5]}, "adapter": None, "tied": True}
    text = json.dumps({**facts, "format": FORMAT}, sort_keys=True, separators=(",", ":"))
    assert content_key(facts) == hashlib.sha256(text.encode()).hexdigest()
    assert content_key(dict(reversed(facts.items()))) == content_key(facts)
    assert content_key({**facts, "rope": {"theta": 1e6, "factors": (1, 2.5)}}) == content_key(facts)
    assert content_key({**facts, "tied": False}) != content_key(facts)


def test_content_key_does_not_depend_on_the_hash_seed():
    # Run as a lone file: importing the package would load torch twice.
    code = (
        "import runpy, sys; print(runpy.run_path(sys.argv[1])['content_key']({'b': 'é', 'a': [1, {'d': 2, 'c': 3}]}))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code, keys.__file__],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {content_key({"a": [1, {"c": 3, "d": 2}], "b": "é"}) + "\n"}


@pytest.mark.parametrize("fact", [torch.zeros(1), b"x", {1: "a"}, {"a", "b"}, [torch.float32]])
def test_content_key_refuses_what_json_cannot_hold(fact):
    with pytest.raises(TypeError, match=r"facts\.x"):
        content_key({"x": fact})


def test_content_key_keeps_its_version_to_itself():
    with pytest.raises(ValueError, match="format"):
        content_key({"format": 2})


# records


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_passages_come_back_bit_for_bit(bank, dtype):
    bank.put_document(Document("a", "x"))
    wanted = passage("p", dtype=dtype)
    wanted.kv.keys[0, 0, 0, :3] = torch.tensor([float("nan"), float("-inf"), -0.0])
    size = bank.put(wanted, chunk=Chunk("a", 0, "x"), representation="text", write="bare")
    assert size > 0
    for _ in range(2):  # the second may come from the hot tier
        found = bank.get(wanted.key)
        assert isinstance(found.kv, StackedKV)
        assert_same(found, wanted)


def test_keys_and_values_in_layers_are_stacked(bank):
    bank.put_document(Document("a", "x"))
    wanted = passage("p")
    layered = dataclasses.replace(wanted, kv=Lists(list(wanted.kv.keys), list(wanted.kv.values)))
    bank.put(layered, chunk=Chunk("a", 0, "x"), representation="text", write="bare")
    assert identical(bank.get(wanted.key).kv.keys, wanted.kv.keys)
    assert identical(bank.get(wanted.key).kv.values, wanted.kv.values)


@pytest.mark.parametrize("store_type", [MemoryStore, DirectoryStore])
def test_stores_keep_every_kind_of_tensor(store_type, tmp_path):
    store = store_type() if store_type is MemoryStore else store_type(tmp_path)
    tensors = {
        "bool": torch.tensor([True, False, True]),
        "int64": torch.tensor([[2**62, -1]]),
        "empty": torch.zeros(0, 4, dtype=torch.float16),
        "scalar": torch.tensor(1.5, dtype=torch.float64),
        "transposed": torch.arange(6, dtype=torch.int32).view(2, 3).T,
        "gradient": torch.ones(3, requires_grad=True),
        "float8": torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
        "layers": torch.randn(3, 2, 5, 4, dtype=torch.bfloat16).transpose(1, 2),
        "no layers": torch.zeros(0, 2, 5, 4),
        "no rows": torch.zeros(2, 1, 0, 4),
    }
    store.put("ab", tensors, {"note": "é"})
    record = store.get("ab")
    assert dict(record.meta) == {"note": "é", "key": "ab"}
    assert sorted(record.names()) == sorted(tensors)
    assert all(identical(record.tensor(name), tensor.detach()) for name, tensor in tensors.items())
    for name in ("layers", "no rows"):
        for index, layer in enumerate(tensors[name]):
            assert identical(record.part(name, index), layer)
    with pytest.raises(DamagedRecordError, match="no tensor 'other'"):
        record.tensor("other")
    with pytest.raises(DamagedRecordError, match="no tensor 'other'"):
        record.part("other", 0)
    for name, index in [("layers", 3), ("layers", -1), ("no layers", 0), ("bool", 0)]:
        with pytest.raises(DamagedRecordError, match=f"'{name}' has no part {index}"):
            record.part(name, index)
    record.close()
    assert list(store.keys()) == ["ab"]
    assert store.drop("ab")
    assert not store.drop("ab")
    assert store.get("ab") is None


def test_records_are_safetensors_files(disk, folder):
    put(disk, "p")
    wanted = passage("p")
    with safe_open(file_of(folder, "p"), framework="pt") as file:
        assert identical(file.get_tensor("k"), wanted.kv.keys)
        assert identical(file.get_tensor("v"), wanted.kv.values)
        assert identical(file.get_tensor("x.image"), wanted.extras["image"])
        meta = file.metadata()
    assert {name: meta[name] for name in ("key", "span", "origin", "layers", "rows", "dtype")} == {
        "key": wanted.key,
        "span": "7",
        "origin": "17",
        "layers": "3",
        "rows": "5",
        "dtype": "bfloat16",
    }


def test_one_tensor_is_read_without_the_others(disk, folder):
    put(disk, "p")
    file = file_of(folder, "p")
    body = bytearray(file.read_bytes())
    body[-1] ^= 1  # the last tensor's last byte
    file.write_bytes(body)
    record = disk.open_record(key_of("p"))
    assert identical(record.tensor("v"), passage("p").kv.values)
    with pytest.raises(DamagedRecordError, match=f"record {key_of('p')} is damaged .* compile"):
        record.tensor(record.names()[-1])
    record.close()


@pytest.mark.parametrize("broken", range(LAYERS))
def test_one_layer_is_read_and_checked_without_the_others(disk, folder, broken):
    put(disk, "p")
    file, wanted = file_of(folder, "p"), passage("p")
    body = bytearray(file.read_bytes())
    place = body.index(wanted.kv.k(broken).view(torch.uint8).numpy().tobytes())
    body[place] ^= 1
    file.write_bytes(body)
    record = disk.open_record(key_of("p"))
    for layer in range(LAYERS):
        assert identical(record.part("v", layer), wanted.kv.v(layer))
        if layer != broken:
            assert identical(record.part("k", layer), wanted.kv.k(layer))
    for read in (lambda: record.part("k", broken), lambda: record.tensor("k")):
        with pytest.raises(DamagedRecordError, match="'k' fails its checksum"):
            read()
    os.truncate(file, len(body) - 1)
    with pytest.raises(DamagedRecordError, match="too short"):
        record.tensor(record.names()[-1])
    assert identical(record.part("v", 0), wanted.kv.v(0))  # nothing else was read
    record.close()


def test_every_flipped_bit_is_noticed(tmp_path):
    store = DirectoryStore(tmp_path)
    layers = torch.arange(48, dtype=torch.bfloat16).view(2, 3, 4, 2)
    tensors = {"k": layers, "i": torch.arange(3), "b": torch.tensor([True, False])}
    store.put("ab", tensors, {"span": "7"})
    file = tmp_path / "passages" / "ab" / "ab.safetensors"
    good = file.read_bytes()

    def read_all():
        record = store.get("ab")
        return {name: record.tensor(name) for name in record.names()}

    def read_parts():
        record = store.get("ab")
        return [record.part("k", 0), record.part("k", 1), record.tensor("i"), record.tensor("b")]

    assert read_all().keys() == tensors.keys()
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 1 << (place % 8)
        file.write_bytes(bad)
        with pytest.raises(DamagedRecordError):
            read_all()
        with pytest.raises(DamagedRecordError):
            read_parts()
    for length in range(0, len(good), 3):
        file.write_bytes(good[:length])
        with pytest.raises(DamagedRecordError):  # found before any tensor is asked for
            store.get("ab")
    file.write_bytes(good + b"\0")
    with pytest.raises(DamagedRecordError, match="bytes and should have"):
        store.get("ab")
    file.write_bytes(good)
    (tmp_path / "passages" / "ab" / "abc.safetensors").write_bytes(good)
    with pytest.raises(DamagedRecordError, match="holds record ab"):
        store.get("abc")


def test_a_file_cut_short_under_an_open_record_is_damage(disk, folder):
    put(disk, "p")
    record = disk.open_record(key_of("p"))
    os.truncate(file_of(folder, "p"), 100)
    with pytest.raises(DamagedRecordError, match="too short"):
        record.tensor("k")
    with pytest.raises(DamagedRecordError, match="too short"):
        record.part("k", 0)
    record.close()


def test_an_open_record_outlives_its_removal(disk):
    put(disk, "p")
    record = disk.open_record(key_of("p"))
    disk.remove("a")
    assert identical(record.part("k", 2), passage("p").kv.k(2))
    record.close()


@pytest.mark.parametrize("key", ["../../etc/x", "a/b", "", "A" * 64, "a.b"])
def test_keys_cannot_leave_the_folder(tmp_path, key):
    with pytest.raises(BankError, match=r"content_key\(\)"):
        DirectoryStore(tmp_path).put(key, {"k": torch.zeros(1)}, {})


def test_what_cannot_be_stored_is_named(disk):
    with pytest.raises(BankError, match=r"cannot store 'x' as torch\.complex64"):
        disk.store.put("ab", {"x": torch.zeros(1, dtype=torch.complex64)}, {})
    good = passage("p").kv
    for kv, why in [
        (Lists([], []), "has no layers"),
        (StackedKV(good.keys[:0], good.values[:0]), "has no layers"),
        (StackedKV(good.keys, good.values[:, :, :, :2]), r"must be \(L, H, T, D\) alike.*\(3, 2, 5, 2\)"),
        (StackedKV(good.keys[0], good.values[0]), r"must be \(L, H, T, D\) alike"),
        (StackedKV(good.keys[:, :, 1:], good.values[:, :, 1:]), r"4 rows of keys and values for token ids \(5,\)"),
    ]:
        with pytest.raises(BankError, match=f"passage {key_of('p')}.*{why}.*compile it again"):
            disk.put(
                dataclasses.replace(passage("p"), kv=kv), chunk=Chunk("a", 0, ""), representation="text", write="bare"
            )
    assert not disk.has(key_of("p"))
    assert disk.verify() == []  # nothing was linked either


# damage


@pytest.mark.parametrize("place", [0, 9, 200, -1])
def test_damaged_passages_are_put_aside_and_missed(disk, folder, place):
    put(disk, "p")
    file = file_of(folder, "p")
    for turn in (1, 2):
        body = bytearray(file.read_bytes())
        body[place] ^= 4
        file.write_bytes(body)
        assert disk.has(key_of("p"))
        assert disk.get(key_of("p")) is None
        assert not disk.has(key_of("p"))
        assert len(disk.damage) == turn
        assert key_of("p") in disk.damage[-1]
        assert "\n" not in disk.damage[-1]
        put(disk, "p")  # compiled again
        assert_same(disk.get(key_of("p")), passage("p"))
    assert sorted(path.name for path in (folder / "quarantine").iterdir()) == [file.name, f"{file.name}.1"]
    stats = disk.stats()
    assert (stats.damaged, stats.quarantined, stats.hits, stats.misses) == (2, 2, 2, 2)
    disk.remove("a")
    assert disk.stats().quarantined == 0


def test_an_empty_file_is_damage(disk, folder):
    put(disk, "p")
    file_of(folder, "p").write_bytes(b"")
    assert disk.get(key_of("p")) is None
    assert disk.open_record(key_of("p")) is None
    assert len(disk.damage) == 1


def test_a_record_that_is_no_passage_is_damage(bank):
    shape = (LAYERS, HEADS, ROWS, DIM)
    good = {"ids": torch.arange(ROWS), "positions": torch.arange(ROWS)[None], "k": torch.zeros(shape)}
    good["v"] = good["k"]
    meta = {"span": "1", "origin": "0"}
    bank.store.put("good", good, meta)
    assert bank.get("good") is not None
    cases = [
        (good, {"span": "1"}, "does not describe a passage"),
        (good, {**meta, "origin": "x"}, "does not describe a passage"),
        *(({n: t for n, t in good.items() if n != name}, meta, f"no tensor '{name}'") for name in good),
        ({**good, "k": torch.zeros(shape[1:])}, meta, "alike"),
        ({**good, "k": torch.zeros(shape[1:]), "v": torch.zeros(shape[1:])}, meta, "alike"),
        *(({**good, "v": torch.zeros(shape).narrow(dim, 0, 1)}, meta, "alike") for dim in range(4)),
        ({**good, "ids": torch.arange(ROWS + 1)}, meta, "5 rows of keys and values for token ids"),
        ({**good, "ids": torch.arange(ROWS)[None]}, meta, "5 rows of keys and values for token ids"),
        ({**good, "k": torch.zeros(0, *shape[1:]), "v": torch.zeros(0, *shape[1:])}, meta, "no layers"),
    ]
    for turn, (tensors, facts, why) in enumerate(cases, start=1):
        bank.store.put(f"bad-{turn}", tensors, facts)
        assert bank.get(f"bad-{turn}") is None
        assert not bank.has(f"bad-{turn}")
        assert len(bank.damage) == turn
        assert why in bank.damage[-1]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3, 1, 2, 2]},
        {"shape": [-2, -1, 2, 2]},
        {"shape": [8]},
        {"dtype": "F32"},
        {"dtype": "C64"},
        {"data_offsets": [-8, 8]},
        {"data_offsets": 3},
        {"shape": None},
    ],
)
def test_a_header_that_contradicts_itself_is_damage(tmp_path, monkeypatch, change):
    store = DirectoryStore(tmp_path)
    tensors = {"k": torch.zeros(2, 1, 2, 2, dtype=torch.bfloat16)}
    sign = recordfile._header_checksum

    def rewritten(header):
        header["k"].update(change)
        return sign(header)

    with monkeypatch.context() as patch:  # a header with a good checksum of its own, as a faulty writer would make
        patch.setattr(recordfile, "_header_checksum", rewritten)
        store.put("ab", tensors, {})
    with pytest.raises(DamagedRecordError):
        store.get("ab")


def test_a_hot_passage_survives_damage_to_its_file(folder):
    with Bank.open(folder) as bank:
        bank.put_document(Document("a", "x"))
        put(bank, "p")
        first = bank.get(key_of("p"))
        os.truncate(file_of(folder, "p"), 10)
        assert bank.get(key_of("p")) is first
        assert_same(first, passage("p"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), BankError),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), BankError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_put_leaves_no_trace(disk, folder, monkeypatch, error, expected, step):
    put(disk, "before")
    before = disk.documents()

    file_of(folder, "p").parent.mkdir(exist_ok=True)
    seen = []

    def fail(*_):
        seen.append(len(list(folder.rglob("*.tmp"))))
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os if step == "fsync" else Path, step, fail)
        with pytest.raises(expected) as caught:
            put(disk, "p")
    if expected is BankError:
        assert re.fullmatch(r"cannot write .*p?.* \(.*\): free some space .* is untouched", str(caught.value))
        assert error.strerror in str(caught.value)
    assert seen[-1] == 1  # it failed with the file half-way
    assert list(folder.rglob("*.tmp")) == []
    assert not disk.has(key_of("p"))
    assert disk.documents() == before
    assert disk.verify() == []
    assert_same(disk.get(key_of("before")), passage("before"))
    put(disk, "p")
    assert_same(disk.get(key_of("p")), passage("p"))


CHILD = f"""
import os, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_bank import Bank, Document, key_of, passage, put, assert_same
"""


def child(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", CHILD + code, *map(str, arguments)], stderr=subprocess.PIPE)


def test_a_writer_killed_midway_is_swept_up_later(disk, folder):
    file_of(folder, "p").parent.mkdir()
    writer = child("bank = Bank.open(sys.argv[1]); os.fsync = lambda handle: os._exit(9); put(bank, 'p')", folder)
    writer.communicate(timeout=60)
    assert writer.returncode == 9
    assert disk.get(key_of("p")) is None
    (left,) = folder.rglob("*.tmp")
    Bank.open(folder).close()
    assert left.exists()  # it might still be written
    os.utime(left, (time.time() - 4000,) * 2)
    Bank.open(folder).close()
    assert not left.exists()


# documents


def test_versions_follow_the_text(bank):
    assert bank.put_document(Document("a", "one", {"lang": "en"})) == 1
    put(bank, "p1")
    assert bank.put_document(Document("a", "one", {"lang": "fr"})) == 1
    assert bank.has(key_of("p1"))
    assert bank.document("a") == Document("a", "one", {"lang": "fr"})
    assert bank.put_document(Document("a", "two")) == 2
    assert not bank.has(key_of("p1"))
    assert bank.get(key_of("p1")) is None
    (info,) = bank.documents()
    assert (info.version, info.passages, info.characters, info.metadata) == (2, 0, 3, {})
    assert bank.put_document(Document("a", "one")) == 3
    assert bank.verify() == []


def test_documents_are_listed_with_what_they_hold(bank):
    bank.put_document(Document("b", "zwei", {"n": 1}))
    bank.put_document(Document("a", "one"))
    size = put(bank, "p", "a", 0) + put(bank, "q", "a", 1, rows=9)
    put(bank, "q", "a", 2, rows=9)  # the same content once more
    first, second = bank.documents()
    assert (first.id, first.digest, first.passages) == ("a", Document("a", "one").digest, 2)
    assert (first.rows, first.bytes) == (ROWS + 9, size)
    assert (second.id, second.characters, second.passages, second.bytes, second.metadata) == ("b", 4, 0, 0, {"n": 1})


def test_shared_passages_stay_until_their_last_document_goes(bank):
    for name in "abc":
        bank.put_document(Document(name, f"text {name}"))
    put(bank, "shared", "a")
    put(bank, "own", "a", 1)
    put(bank, "shared", "b")
    assert bank.link(key_of("shared"), Chunk("c", 0, "x"), "text", "bare")
    own = bank.store.size(key_of("own"))
    assert bank.put_document(Document("b", "changed")) == 2
    assert bank.remove("a") == own
    assert_same(bank.get(key_of("shared")), passage("shared"))
    assert bank.remove("c") > 0
    assert not bank.has(key_of("shared"))
    assert bank.stats().passages == 0


def test_a_link_needs_a_record_and_a_document(bank):
    bank.put_document(Document("a", "x"))
    assert not bank.link(key_of("p"), Chunk("a", 0, "x"), "text", "bare")
    put(bank, "p")
    with pytest.raises(DocumentError, match="put the document first"):
        bank.link(key_of("p"), Chunk("b", 0, "x"), "text", "bare")
    with pytest.raises(DocumentError, match="put the document first"):
        put(bank, "q", "b")
    assert not bank.has(key_of("q"))


def test_unknown_documents_are_named_with_their_neighbours(bank):
    bank.put_document(Document("report-2024", "x"))
    with pytest.raises(DocumentError, match=r"'report-2023'.*did you mean 'report-2024'\?"):
        bank.document("report-2023")
    with pytest.raises(DocumentError, match="no document 'zzz' in the bank: compile it first"):
        bank.remove("zzz")


def test_odd_documents_are_kept(bank):
    text = "\x00 é \U0001f600\r\n"
    bank.put_document(Document("a\n/b é", text))
    assert bank.document("a\n/b é").text == text


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (Document("", "x"), "document '' has an empty id: give it one"),
        (Document("a", ""), "document 'a' has no text: .*give it some"),
        (Document("a", " \n\t\u3000"), "document 'a' has no text: .*give it some"),
        (Document("a", "x\ud800"), "document 'a' is not valid Unicode .character 1: .*decode its source again"),
        (Document("\ud800", "x"), r"document '\\ud800' has an id that is not valid Unicode .*: rename it"),
        (Document("b", "x", {"when": object()}), "the metadata of document 'b' is not JSON"),
    ],
)
def test_unusable_documents_are_refused_by_name(bank, document, message):
    bank.put_document(Document("a", "before"))
    with pytest.raises(DocumentError, match=message) as caught:
        bank.put_document(document)
    assert "\n" not in str(caught.value)
    assert [info.id for info in bank.documents()] == ["a"]
    assert bank.document("a").text == "before"


def cut(document, index=0, text="page"):
    return Chunk(document.id, index, text, document_digest=document.digest)


def test_a_chunk_of_an_older_version_is_linked_to_nothing(bank):
    old, new, other = Document("a", "old"), Document("a", "new"), Document("b", "other")
    for document in (old, new, other):
        bank.put_document(document)
    assert bank.put(passage("p"), chunk=cut(old), representation="text", write="bare") == 0
    assert not bank.has(key_of("p"))
    assert bank.put(passage("p"), chunk=cut(other), representation="text", write="bare") > 0
    assert not bank.link(key_of("p"), cut(old), "text", "bare")
    bank.ensure_link(key_of("p"), cut(old), "text", "bare", ROWS)
    assert bank.put(passage("p"), chunk=cut(old), representation="text", write="bare") == 0
    assert [info.passages for info in bank.documents()] == [0, 1]
    assert bank.link(key_of("p"), cut(new), "text", "bare")
    assert [info.passages for info in bank.documents()] == [1, 1]
    bank.remove("b")
    assert_same(bank.get(key_of("p")), passage("p"))
    assert bank.verify() == []


def test_a_version_stored_while_a_passage_is_written_wins(disk, folder, monkeypatch):
    old = Document("a", "the text of a")
    write = DirectoryStore.put

    def overtaken(store, *arguments):
        size = write(store, *arguments)
        with Bank.open(folder) as other:
            other.put_document(Document("a", "new"))
        return size

    monkeypatch.setattr(DirectoryStore, "put", overtaken)
    assert disk.put(passage("p"), chunk=cut(old), representation="text", write="bare") == 0
    assert not disk.has(key_of("p"))
    assert disk.documents()[0].passages == 0
    assert disk.verify() == []


def test_ensure_link_links_once_and_opens_nothing(bank, monkeypatch):
    first, second = Document("a", "x"), Document("b", "x")
    bank.put_document(first)
    bank.put_document(second)
    size = bank.put(passage("p"), chunk=cut(first), representation="text", write="bare")

    def opened(_, key):
        raise AssertionError(f"{key} was opened")

    monkeypatch.setattr(type(bank.store), "get", opened)
    for _ in range(2):
        bank.ensure_link(key_of("p"), cut(second), "text", "bare", ROWS)
        info = bank.documents()[1]
        assert (info.passages, info.rows, info.bytes) == (1, ROWS, size)
    with monkeypatch.context() as patch:
        patch.setattr(bank.catalogue, "link", opened)  # known: one look is enough
        bank.ensure_link(key_of("p"), cut(second), "text", "bare", ROWS)
    bank.ensure_link(key_of("absent"), cut(second), "text", "bare", ROWS)
    assert bank.documents()[1].passages == 1
    with pytest.raises(DocumentError, match="put the document first"):
        bank.ensure_link(key_of("p"), Chunk("c", 0, "x"), "text", "bare", ROWS)
    assert bank.remove("a") == 0
    assert bank.has(key_of("p"))
    assert bank.remove("b") == size


def test_many_documents_are_removed_at_once(bank):
    for name in "abcd":
        bank.put_document(Document(name, f"text {name}"))
        put(bank, f"own {name}", name)
        put(bank, "shared", name, 1)
    size = bank.store.size(key_of("own a"))
    with pytest.raises(DocumentError, match="no document 'zzz'"):
        bank.remove_all(["a", "zzz"])
    assert len(bank.documents()) == 4
    assert bank.remove_all(name for name in ["a", "b", "a"]) == 2 * size
    assert [info.id for info in bank.documents()] == ["c", "d"]
    assert bank.has(key_of("shared"))
    assert bank.remove_all([]) == 0
    assert bank.remove_all(["d", "c"]) == 2 * size + size
    assert bank.stats().bytes == 0


def test_digests_are_listed_by_id(bank):
    documents = [Document(name, f"text {name}") for name in "bca"]
    for document in documents:
        bank.put_document(document)
    bank.put_document(Document("c", "changed"))
    assert bank.document_digests() == [
        ("a", documents[2].digest),
        ("b", documents[0].digest),
        ("c", Document("c", "changed").digest),
    ]


def test_a_documents_records_are_those_of_its_current_version(bank):
    for name in "ab":
        bank.put_document(Document(name, f"text of {name}"))
    put(bank, "one")
    put(bank, "two", index=1)
    put(bank, "other", "b")
    bank.put(passage("beside"), chunk=Chunk("a", 0, "page 0"), representation="text, anchors", write="bare")
    assert bank.records_of("a").keys() == {key_of(name) for name in ("one", "two", "beside")}
    assert bank.records_of("a")[key_of("beside")] == "text, anchors"
    bank.put_document(Document("a", "changed"))
    assert bank.records_of("a") == bank.records_of("unknown") == {}


def test_removal_leaves_nothing_behind(folder):
    secret = "the launch code is 4711"
    vector = torch.tensor([[0.123, -4.5, 6.75, 1e-3]])
    with Bank.open(folder) as bank:
        bank.put_document(Document("a", secret))
        bank.put_document(Document("b", "classified"))
        bank.put(passage("p"), chunk=Chunk("a", 0, secret), representation="text", write="bare")
        bank.put_vectors([secret], "e", vector)
        assert bank.get(key_of("p")) is not None

        def holds(part):
            return any(part in path.read_bytes() for path in folder.rglob("*") if path.is_file())

        bank.put_document(Document("c", "kept"))
        parts = [secret.encode(), vector.numpy().tobytes(), passage("p").kv.k(1).view(torch.uint8).numpy().tobytes()]
        assert all(holds(part) for part in [*parts, b"classified"])
        bank.put_document(Document("b", "public"))
        assert not holds(b"classified")
        bank.put_vectors(["public"], "e", vector + 1)
        freed = bank.remove("a")
        assert freed > 0
        assert not any(holds(part) for part in parts)
        assert bank.stats().hot_bytes == 0
        assert bank.get(key_of("p")) is None
        assert bank.vectors([secret, "public"], "e")[0] is None
        assert bank.vectors([secret, "public"], "e")[1] is not None
        bank.put_vectors([secret], "e", vector)  # embedded, but never put
        bank.prune()
        assert not any(holds(part) for part in parts)
        assert bank.vectors(["public"], "e")[0] is not None

        for name in ("c", "d"):
            bank.put_document(Document(name, secret))
        bank.remove_all(["c", "d"])
        assert not any(holds(part) for part in parts)


def test_removal_elsewhere_reaches_the_hot_tier(folder):
    with Bank.open(folder) as bank, Bank.open(folder) as other:
        bank.put_document(Document("a", "x"))
        put(bank, "p")
        assert bank.get(key_of("p")) is not None
        other.remove("a")
        assert bank.get(key_of("p")) is None
        assert bank.stats().hot_bytes == 0


# hot tier


def test_the_hot_tier_keeps_what_was_used_last(folder):
    tensors = passage("p0")
    size = sum(t.nbytes for t in (tensors.ids, tensors.positions, tensors.kv.keys, tensors.kv.values))
    size += sum(t.nbytes for t in tensors.extras.values())
    with Bank.open(folder, hot_bytes=2 * size) as bank:
        bank.put_document(Document("a", "x"))
        for index in range(3):
            put(bank, f"p{index}", index=index)
        first, second = bank.get(key_of("p0")), bank.get(key_of("p1"))
        assert bank.get(key_of("p0")) is first
        bank.get(key_of("p2"))  # p1 leaves
        assert bank.stats().hot_bytes == 2 * size
        assert bank.get(key_of("p0")) is first
        assert bank.get(key_of("p1")) is not second
        put(bank, "large", index=4, rows=100)
        assert bank.get(key_of("large")) is not bank.get(key_of("large"))
        assert bank.stats().hot_bytes == 2 * size


def test_without_a_hot_tier_nothing_stays_in_memory(disk):
    put(disk, "p")
    assert disk.get(key_of("p")) is not disk.get(key_of("p"))
    assert disk.stats().hot_bytes == 0


# vectors, settings, housekeeping


def test_vectors_are_kept_by_text_and_embedder(bank):
    vectors = torch.randn(2, 8)
    bank.put_vectors(["x", "y"], "e", vectors)
    found = bank.vectors(["y", "z", "x"], "e")
    assert identical(found[0], vectors[1])
    assert found[1] is None
    assert identical(found[2], vectors[0])
    assert bank.vectors(["x"], "other") == [None]
    bank.put_vectors(["x"], "e", vectors[1:].double())
    assert identical(bank.vectors(["x"], "e")[0], vectors[1])
    with pytest.raises(BankError, match="2 texts but 1 vectors of e"):
        bank.put_vectors(["x", "y"], "e", vectors[:1])


def test_what_was_computed_about_a_text_goes_with_its_last_owner(bank):
    text, page = "page one|page two", "page one|"
    first, second = Document("a", text), Document("b", text)

    def kept():
        lengths = bank.page_lengths(first.digest, "renderer")
        return lengths, *(vector is not None for vector in bank.vectors([text, page], "e"))

    def compute():
        bank.put_page_lengths(first.digest, "renderer", (9, 8))
        bank.put_vectors([text, page], "e", torch.ones(2, 4))

    bank.put_document(first)
    compute()
    for name, document in [("p", first), ("q", second)]:
        bank.put_document(document)
        bank.put(passage(name), chunk=cut(document, text=page), representation="text", write="bare")
    assert kept() == ([9, 8], True, True)
    assert bank.page_lengths(first.digest, "other") is None
    bank.put_page_lengths(first.digest, "renderer", [9, 9])
    assert kept() == ([9, 9], True, True)
    bank.put_document(Document("a", "changed"))
    assert kept() == ([9, 9], True, True)
    bank.put_document(Document("c", page))  # a document with a chunk's text
    bank.remove("b")
    assert kept() == (None, False, True)
    bank.remove("c")
    assert kept() == (None, False, False)
    bank.put_document(first)
    compute()
    bank.put_document(Document("a", "changed again"))
    assert bank.page_lengths(first.digest, "renderer") is None
    assert bank.vectors([text], "e") == [None]


def test_models_are_added_one_by_one(folder):
    with Bank.open(folder) as bank, Bank.open(folder) as other:
        assert bank.models() == {}
        bank.add_model("m1", {"source": "a", "rope": {"theta": 1e6}})
        other.add_model("m2", {"source": "b"})
        bank.add_model("m1", {"source": "c"})
        assert other.models() == bank.models() == {"m1": {"source": "c"}, "m2": {"source": "b"}}
        with pytest.raises(BankError, match="what is noted of model m3 is not JSON"):
            bank.add_model("m3", {"x": object()})


def test_a_bank_made_before_a_table_existed_opens(folder):
    with Bank.open(folder) as bank:
        bank.put_document(Document("a", "x"))
        put(bank, "p")
    connection = sqlite3.connect(folder / "catalogue.sqlite")
    for table in ("page_lengths", "models", "heads"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("DROP INDEX links_by_text")
    connection.close()
    with Bank.open(folder) as bank:
        assert bank.page_lengths("d", "r") is None
        bank.add_model("m", {})
        assert bank.models() == {"m": {}}
        assert_same(bank.get(key_of("p")), passage("p"))
        assert bank.verify() == []
        bank.remove("a")
        assert bank.stats().passages == 0


def test_settings_are_kept(folder):
    with Bank.open(folder) as bank:
        assert bank.get_setting("model") is None
        assert bank.get_setting("model", "none") == "none"
        bank.set_setting("model", {"path": "m", "dtypes": ["bf16"]})
        bank.set_setting("alpha", 0.25)
        with pytest.raises(BankError, match="the setting 'bad' is not JSON"):
            bank.set_setting("bad", object())
    with Bank.open(folder, create=False) as bank:
        assert bank.get_setting("model") == {"path": "m", "dtypes": ["bf16"]}
        assert bank.get_setting("alpha") == 0.25


def test_stats_count(disk):
    put(disk, "p")
    put(disk, "q", index=1, rows=9)
    disk.store.put("ab", {"k": torch.zeros(4)}, {})
    disk.get(key_of("p"))
    disk.get(key_of("p"))
    disk.get("none")
    stats = disk.stats()
    assert (stats.documents, stats.passages, stats.rows, stats.orphans) == (1, 3, ROWS + 9, 1)
    assert (stats.hits, stats.misses, stats.damaged, stats.quarantined) == (2, 1, 0, 0)
    assert stats.bytes == sum(disk.store.size(key) for key in disk.store.keys())  # noqa: SIM118


def test_verify_reports_every_kind_of_fault(disk, folder):
    for index, name in enumerate(["good", "flipped", "missing"]):
        put(disk, name, index=index)
    body = bytearray(file_of(folder, "flipped").read_bytes())
    body[-20] ^= 64
    file_of(folder, "flipped").write_bytes(body)
    file_of(folder, "missing").unlink()
    orphan = passage("orphan")
    disk.put_document(Document("b", "y"))
    put(disk, "orphan", "b")
    disk.catalogue.unlink(orphan.key, Chunk("b", 0, "y"), "text", "bare")
    steps = []
    lines = disk.verify(lambda done, total: steps.append((done, total)))
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert len(lines) == 3
    by_key = {re.search(r"[0-9a-f]{64}", line)[0]: line for line in lines}
    assert re.search(r"damaged .*compile its document again \(a\)", by_key[key_of("flipped")])
    assert re.search(r"missing: compile its document again \(a\)", by_key[key_of("missing")])
    assert "orphan" in by_key[orphan.key]
    assert disk.stats().quarantined == 1
    assert disk.prune() > 0
    assert not disk.has(orphan.key)
    put(disk, "flipped", index=1)
    put(disk, "missing", index=2)
    assert disk.verify() == []


def test_records_outlive_their_catalogue(folder):
    with Bank.open(folder) as bank:
        bank.put_document(Document("a", "x"))
        put(bank, "p")
    for path in folder.glob("catalogue.sqlite*"):
        path.unlink()
    with Bank.open(folder, create=False) as bank:
        assert bank.documents() == []
        assert_same(bank.get(key_of("p")), passage("p"))
        (line,) = bank.verify()
        assert "orphan" in line
        bank.put_document(Document("a", "x"))
        assert bank.link(key_of("p"), Chunk("a", 0, "x"), "text", "bare")
        assert bank.documents()[0].rows == ROWS
        assert bank.verify() == []


@pytest.mark.parametrize("damage", ["head", "pages"])
def test_a_damaged_catalogue_is_one_line(folder, damage):
    with Bank.open(folder) as bank:
        for index in range(200):
            bank.put_document(Document(f"document {index}", "text " * 200))
    file = folder / "catalogue.sqlite"
    body = bytearray(file.read_bytes())
    body[0 if damage == "head" else 4096 :] = os.urandom(len(body) - (0 if damage == "head" else 4096))
    file.write_bytes(body)

    def use():
        with Bank.open(folder) as bank:
            bank.documents()

    with pytest.raises(BankError, match=r"catalogue\.sqlite .*damaged: delete it and compile") as caught:
        use()
    assert "\n" not in str(caught.value)


# opening


def test_opening_what_is_no_bank(tmp_path):
    with pytest.raises(BankError, match=r"no bank at .*absent: make one with `kvbind compile`"):
        Bank.open(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(BankError, match="kvbind compile"):
        Bank.open(tmp_path / "empty", create=False)
    Bank.open(tmp_path / "empty").close()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"x")
    for create in (True, False):
        with pytest.raises(BankError, match="photos is not a bank and not empty"):
            Bank.open(tmp_path / "photos", create=create)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]
    with pytest.raises(BankError, match="is a file"):
        Bank.open(tmp_path / "photos" / "cat.jpg")
    with pytest.raises(BankError, match="cannot open the bank"):
        Bank.open(tmp_path / "photos" / "cat.jpg" / "bank")


def test_a_newer_bank_is_refused(folder):
    Bank.open(folder).close()
    marker = folder / "bank.json"
    marker.write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(BankError, match=rf"has format {FORMAT + 1}.*upgrade kvbind"):
        Bank.open(folder)
    marker.write_text("?")
    with pytest.raises(BankError, match=r"bank\.json is damaged: write"):
        Bank.open(folder)
    marker.unlink()
    connection = sqlite3.connect(folder / "catalogue.sqlite")
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    with pytest.raises(BankError, match=rf"has format {FORMAT + 1}.*upgrade kvbind"):
        Bank.open(folder)


def test_a_closed_bank_says_so(folder):
    bank = Bank.open(folder)
    bank.close()
    with pytest.raises(BankError, match="open the bank again"):
        bank.documents()


# several at once


def test_threads_share_a_bank(folder):
    failures = []

    def work(bank, turn):
        try:
            for index in range(8):
                bank.put_document(Document(f"d{index}", f"text {index}"))
                put(bank, f"p{index}", f"d{index}")
                assert_same(bank.get(key_of(f"p{index}")), passage(f"p{index}"))
                if index % 4 == turn % 4:
                    bank.put_vectors([f"text {index}"], "e", torch.ones(1, 4))
        except BaseException as error:
            failures.append(error)

    with Bank.open(folder, hot_bytes=2000) as bank:
        threads = [threading.Thread(target=work, args=(bank, turn)) for turn in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert bank.verify() == []
        assert len(bank.documents()) == 8


WORK = """
import pathlib, time
gate = pathlib.Path(sys.argv[2])
(gate / sys.argv[3]).touch()
while len(list(gate.iterdir())) < 2:  # start together
    time.sleep(0.001)
bank = Bank.open(sys.argv[1])
for index in range(15):
    bank.put_document(Document(f"d{index}", f"text {index}"))
    for part in range(3):
        name = f"p{index + part}"
        put(bank, name, f"d{index}", part)
        assert_same(bank.get(key_of(name)), passage(name))
    bank.put_document(Document("changing", f"{sys.argv[3]} {index}"))
    put(bank, f"c{index % 3}", "changing")
assert bank.damage == [], bank.damage
bank.close()
"""


def test_processes_share_a_folder(folder, tmp_path):
    gate = tmp_path / "gate"
    gate.mkdir()
    workers = [child(WORK, folder, gate, number) for number in range(2)]
    errors = [worker.communicate(timeout=90)[1].decode() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], errors
    with Bank.open(folder, create=False) as bank:
        assert bank.verify() == []
        infos = {info.id: info for info in bank.documents()}
        assert len(infos) == 16
        assert all(infos[f"d{index}"].passages == 3 for index in range(15))
        assert all(infos[f"d{index}"].version == 1 for index in range(15))
        assert infos["changing"].version == 30
        for index in range(17):
            assert_same(bank.get(key_of(f"p{index}")), passage(f"p{index}"))
        assert bank.stats().orphans == 0
    assert list(folder.rglob("*.tmp")) == []
