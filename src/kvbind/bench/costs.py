"""Documents compiled one by one, and what each cost, noted once."""

import time
from collections.abc import Iterable
from dataclasses import replace

from kvbind.bench.records import Journal
from kvbind.engine import Engine
from kvbind.methods import Method
from kvbind.steps.plan import label
from kvbind.types import Document, Representation


def prepare(engine: Engine, journal: Journal, documents: Iterable[Document], method: Method) -> tuple[str, ...]:
    """Have all that a method may take of the documents in the bank; returns the keys of these passages."""
    keys: dict[str, None] = {}
    for document in documents:
        if method.write is None:
            engine.library.check(document, method.representations)  # breaks pages, which is not to be timed
            engine.add(document)
        else:
            for shown in method.representations:
                keys.update(dict.fromkeys(_compile(engine, journal, document, method, shown)))
    return tuple(keys)


def _compile(
    engine: Engine, journal: Journal, document: Document, method: Method, shown: Representation
) -> dict[str, None]:
    """Compile a document in one representation, and note its cost: methods that write alike share it.

    The cost is timed from the text to the stored record, one document at a time. It is null where the bank had some
    of it before: then it was not measured.
    """
    assert method.write is not None
    library, bank = engine.library, engine.bank
    start = time.perf_counter()
    chunks = library.chunks(document, shown)
    keys = dict.fromkeys(library.key(chunk, shown, method.write) for chunk in chunks)
    there = [bank.has(key) for key in keys]
    name = document.id, method.write.label, label(shown)
    if name in journal.costs and all(there):
        return keys
    report = engine.compile([document], replace(method, representations=(shown,), allocate=None))
    seconds = time.perf_counter() - start
    if name not in journal.costs:
        journal.append_cost(
            {
                **dict(zip(("document", "write", "shown"), name, strict=True)),
                "seconds": None if any(there) else seconds,
                "rows": None if any(there) else report.rows,
                "bytes": sum(bank.store.size(key) or 0 for key in keys),
                "passages": len(chunks),
            }
        )
    return keys
