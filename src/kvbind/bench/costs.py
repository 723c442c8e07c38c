"""Documents compiled one by one, and what each cost, noted once: its passages, and what repair needs beside them."""

import time
from collections.abc import Iterable
from dataclasses import replace

from kvbind.bank import Bank
from kvbind.bench.records import CostName, Journal
from kvbind.engine import Engine
from kvbind.methods import Method
from kvbind.steps.companions import critical_layers
from kvbind.steps.library import Library
from kvbind.types import Document, Page, Representation, label


def prepare(engine: Engine, journal: Journal, documents: Iterable[Document], method: Method) -> tuple[str, ...]:
    """Have all that a method may take of the documents in the bank; returns the keys of their passages."""
    keys: dict[str, None] = {}
    for document in documents:
        if method.write is None:
            engine.library.check(document, method.representations)  # breaks pages, which is not to be timed
            engine.add(document)
            continue
        for shown in method.representations:
            passages = _compile(engine, journal, document, method, shown)
            _complete(engine, journal, document, method, shown, len(passages))
            keys.update(passages)
    return tuple(keys)


def _ready(library: Library, document: Document, shown: Representation) -> None:
    """Break pages, and embed what a compile would: methods share that, and the first of them is not to pay for all."""
    library.check(document, (shown,))
    library.vectors([document.text, *(chunk.text for chunk in library.chunks(document, shown))])


def companions(library: Library, method: Method, shown: Representation) -> dict[str, Method]:
    """What repair needs beside passages, by name, each with a method whose compiling makes it and those before it.

    Methods that need the same share it. Raises MethodError for a critical layer that the model does not have.
    """
    selector = method.selector
    if selector is None:
        return {}
    alone, made = replace(method, representations=(shown,), allocate=None), {}
    if isinstance(shown, Page):
        made["visual embeddings"] = replace(alone, selector=replace(selector, probe=None))
    if selector.probe is not None:
        layers = "+".join(map(str, critical_layers(library, selector.probe)))
        made[f"anchors by {selector.probe.anchors}, digest {selector.probe.digest}, layers {layers}"] = alone
    return made


def companion_keys(bank: Bank, documents: Iterable[Document], method: Method) -> tuple[str, ...]:
    """The keys of what the bank holds beside the documents' passages, for this method or others that repair."""
    if method.selector is None:
        return ()
    kinds = tuple(f"{label(shown)}, " for shown in method.representations)
    records = [bank.records_of(document.id) for document in documents]
    return tuple(dict.fromkeys(key for known in records for key, kind in known.items() if kind.startswith(kinds)))


def _compile(
    engine: Engine, journal: Journal, document: Document, method: Method, shown: Representation
) -> dict[str, None]:
    """Compile a document's passages in one representation, and note their cost: methods that write alike share it.

    The cost is timed from the text, its pages broken, to the stored record, one document at a time. It is null where
    the bank had some of it before: then it was not measured.
    """
    assert method.write is not None
    library, bank = engine.library, engine.bank
    name = document.id, method.write.label, label(shown), ""
    if name not in journal.costs:
        _ready(library, document, shown)
    start = time.perf_counter()
    chunks = library.chunks(document, shown)
    keys = dict.fromkeys(library.key(chunk, shown, method.write) for chunk in chunks)
    there = [bank.has(key) for key in keys]
    if name in journal.costs and all(there):
        return keys
    report = engine.compile([document], replace(method, representations=(shown,), allocate=None, selector=None))
    seconds = None if any(there) else time.perf_counter() - start
    size = sum(bank.store.size(key) or 0 for key in keys)
    _note(journal, name, seconds, size, rows=None if any(there) else report.rows, passages=len(chunks))
    return keys


def _complete(
    engine: Engine, journal: Journal, document: Document, method: Method, shown: Representation, passages: int
) -> None:
    """Make what repair needs beside a document's passages, one for each, and note what each kind cost.

    Seconds hold the checks of a compile too. Seconds and bytes are null where the bank had some of it before.
    """
    assert method.write is not None
    bank = engine.bank
    for companion, making in companions(engine.library, method, shown).items():
        before, start = bank.records_of(document.id), time.perf_counter()
        engine.compile([document], making)
        seconds = time.perf_counter() - start
        made = bank.records_of(document.id).keys() - before.keys()
        name = document.id, method.write.label, label(shown), companion
        if len(made) == passages:
            _note(journal, name, seconds, sum(bank.store.size(key) or 0 for key in made))
        else:
            _note(journal, name, None, None)


def _note(journal: Journal, name: CostName, seconds: float | None, size: int | None, **more: int | None) -> None:
    if name not in journal.costs:
        place = dict(zip(("document", "write", "shown", "companion"), name, strict=True))
        journal.append_cost({**place, "seconds": seconds, "bytes": size, **more})
