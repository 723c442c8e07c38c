"""Counting and checking everything that a bank holds."""

from collections.abc import Callable
from dataclasses import dataclass

from kvbind.bank.catalogue import Catalogue
from kvbind.bank.codec import read_passage
from kvbind.bank.passages import Passages
from kvbind.bank.store import Store
from kvbind.errors import DamagedRecordError


@dataclass(frozen=True)
class BankStats:
    """What a bank holds, and how often it was asked since it was opened.

    `passages` counts records but for heads, `bytes` all of them, `rows` those of linked passages. `hits` and `misses`
    count calls of `get`, and `damaged` the damaged records met. `orphans` are records that no document has.
    """

    documents: int
    passages: int
    rows: int
    bytes: int
    hot_bytes: int
    hits: int
    misses: int
    damaged: int
    quarantined: int
    orphans: int


def stats(passages: Passages, catalogue: Catalogue) -> BankStats:
    """Count records and links; reads no record."""
    store = passages.store
    sizes = {key: store.size(key) or 0 for key in store.keys()}  # noqa: SIM118
    linked, heads = catalogue.linked(), catalogue.heads()
    return BankStats(
        documents=len(catalogue.document_ids()),
        passages=len(sizes.keys() - heads),
        rows=sum(linked.values()),
        bytes=sum(sizes.values()),
        hot_bytes=passages.hot.bytes,
        hits=passages.hits,
        misses=passages.misses,
        damaged=len(passages.damage),
        quarantined=len(store.quarantined()),
        orphans=len(sizes.keys() - linked.keys() - heads),
    )


def verify(passages: Passages, catalogue: Catalogue, progress: Callable[[int, int], None] | None) -> list[str]:
    """Read every record; returns a line for each damaged, orphan or missing one."""
    store = passages.store
    lines = [
        f"the catalogue is damaged ({line}): delete it and compile the documents again" for line in catalogue.check()
    ]
    linked = catalogue.linked()
    owned = linked.keys() | catalogue.heads()
    keys = list(store.keys())
    for done, key in enumerate(keys, start=1):
        try:
            _read(store, key)
        except DamagedRecordError as error:
            passages.put_aside(key, error)
            lines.append(f"{error}{_owners(catalogue, key)}")
        else:
            # Asked again: it may have been linked since, or have been dropped with its document.
            if key not in owned and not catalogue.linked_by(key) and store.size(key) is not None:
                lines.append(
                    f"record {key} is an orphan, no document has it: compile its document again or prune the bank"
                )
        if progress is not None:
            progress(done, len(keys))
    for key in linked.keys() - set(keys):
        if store.size(key) is None and catalogue.linked_by(key):
            lines.append(f"record {key} is missing: compile its document again{_owners(catalogue, key)}")
    return lines


def _read(store: Store, key: str) -> None:
    record = store.get(key)
    if record is not None:
        try:
            read_passage(record)
        finally:
            record.close()


def _owners(catalogue: Catalogue, key: str) -> str:
    owners = catalogue.linked_by(key)
    return f" ({', '.join(owners)})" if owners else ""
