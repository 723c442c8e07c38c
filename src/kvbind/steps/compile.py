"""Compiling a corpus: document after document, batch after batch, each passage stored as soon as it is there."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kvbind.errors import MethodError
from kvbind.methods import Method
from kvbind.steps.companions import prepare
from kvbind.steps.fetch import compile_choices
from kvbind.steps.library import Library
from kvbind.steps.plan import Choice
from kvbind.types import Document, Page, Passage, label


@dataclass(frozen=True)
class CompileReport:
    """What a compile did: counts, rows and bytes of new passages, and seconds.

    `replaced` lists the documents whose text was another one before (their old passages are gone), and
    `missing_characters` what the font could not draw, by document.
    """

    documents: int = 0
    passages: int = 0
    compiled: int = 0
    skipped: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    replaced: tuple[str, ...] = ()
    missing_characters: Mapping[str, str] = field(default_factory=dict)


Progress = Callable[[CompileReport], None]


def compile_documents(
    library: Library, documents: Iterable[Document], method: Method, progress: Progress | None = None
) -> CompileReport:
    """Compile every representation that a method may choose; `progress` is told after every document and passage."""
    if method.write is None:
        raise MethodError(f"{method.name} reuses nothing, so there is nothing to compile: ask with it directly")
    tally = _Tally(progress)
    for _, passage in compile_choices(library, _missing(library, documents, method, tally), method.write):
        report = tally.report
        tally.tell(compiled=report.compiled + 1, rows=report.rows + passage.rows, bytes=report.bytes + _bytes(passage))
    tally.tell(skipped=tally.report.passages - tally.report.compiled)  # equal texts are compiled once
    if method.selector is not None:
        for document_id in tally.seen:
            prepare(library, _choices(library, library.bank.document(document_id), method), method)
    return tally.report


class _Tally:
    """The report as it grows."""

    def __init__(self, progress: Progress | None) -> None:
        self.report, self.progress, self.start = CompileReport(), progress, time.perf_counter()
        self.seen: list[str] = []

    def tell(self, **changes: object) -> None:
        self.report = replace(self.report, seconds=time.perf_counter() - self.start, **changes)  # type: ignore[arg-type]
        if self.progress is not None:
            self.progress(self.report)


def _missing(library: Library, documents: Iterable[Document], method: Method, tally: _Tally) -> Iterator[Choice]:
    """What the bank lacks of each document, which is put into it on the way, with its chunks' vectors."""
    before = dict(library.bank.document_digests())
    for document in documents:
        library.check(document, method.representations)
        library.bank.put_document(document)
        wanted = _choices(library, document, method)
        library.vectors([document.text, *(choice.chunk.text for choice in wanted)])
        lacking = [choice for choice in wanted if not _linked(library, choice, method)]
        tally.seen.append(document.id)
        report = tally.report
        replaced = before.get(document.id, document.digest) != document.digest
        tally.tell(
            documents=report.documents + 1,
            passages=report.passages + len(wanted),
            skipped=report.skipped + len(wanted) - len(lacking),
            replaced=(*report.replaced, document.id) if replaced else report.replaced,
            missing_characters={**report.missing_characters, **_undrawable(library, document, method)},
        )
        yield from lacking


def _choices(library: Library, document: Document, method: Method) -> list[Choice]:
    assert method.write is not None
    return [
        Choice(chunk, representation, number > 0, library.key(chunk, representation, method.write))
        for number, representation in enumerate(method.representations)
        for chunk in library.chunks(document, representation)
    ]


def _linked(library: Library, choice: Choice, method: Method) -> bool:
    """Whether the passage is there already, be it through another document of the same content."""
    assert method.write is not None
    return library.bank.link(choice.key, choice.chunk, label(choice.representation), method.write.label)


def _undrawable(library: Library, document: Document, method: Method) -> dict[str, str]:
    shown = method.representations[0]
    missing = library.renderer(shown.spec).missing(document.text) if isinstance(shown, Page) else ""
    return {document.id: missing} if missing else {}


def _bytes(passage: Passage) -> int:
    layers = range(passage.kv.layers)
    return sum(passage.kv.k(layer).nbytes + passage.kv.v(layer).nbytes for layer in layers)
