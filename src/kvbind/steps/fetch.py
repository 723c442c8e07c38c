"""Fetching passages from the bank, and compiling those that are not there."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvbind.errors import PromptTooLongError
from kvbind.methods import Method, Write
from kvbind.steps.library import Library
from kvbind.steps.plan import Choice
from kvbind.steps.write import write_passages
from kvbind.types import Encoding, Page, Passage, Representation

# Rows of one compile batch. A GPU needs many to be busy; a CPU is busy with few, and progress shows sooner.
BATCH_ROWS = {"cuda": 8192, "cpu": 1024}


def label(representation: Representation) -> str:
    """A representation's short name: `text` or `page@72`."""
    return f"page@{representation.dpi}" if isinstance(representation, Page) else "text"


def fetch(library: Library, choices: Sequence[Choice], method: Method) -> tuple[list[Passage], list[bool]]:
    """Passages of a request, in order, and which were in the bank; the others are compiled now and kept."""
    assert method.write is not None
    found: dict[str, Passage] = {}
    for choice in choices:
        if (passage := library.bank.get(choice.key)) is not None:
            found[choice.key] = passage
    hits = [choice.key in found for choice in choices]
    missing = {choice.key: choice for choice, hit in zip(choices, hits, strict=True) if not hit}
    for choice, passage in compile_choices(library, missing.values(), method.write):
        found[choice.key] = passage
    return [found[choice.key] for choice in choices], hits


@dataclass(frozen=True)
class _Waiting:
    choice: Choice
    encoding: Encoding


def compile_choices(library: Library, choices: Iterable[Choice], write: Write) -> Iterator[tuple[Choice, Passage]]:
    """Compile chunks in batches, storing each passage whole before it is handed out."""
    batches: dict[str, list[_Waiting]] = {}  # one per representation: pages of two resolutions differ too much
    for choice in choices:
        encoding = library.encode(choice.chunk, choice.representation)
        _check_length(library, choice, encoding)
        batch = batches.setdefault(label(choice.representation), [])
        if not _fits(batch, encoding, BATCH_ROWS.get(library.backbone.device.type, 4096)):
            yield from _compile_batch(library, batch, write)
            batch.clear()
        batch.append(_Waiting(choice, encoding))
    for batch in batches.values():
        if batch:
            yield from _compile_batch(library, batch, write)


def _fits(batch: Sequence[_Waiting], encoding: Encoding, limit: int) -> bool:
    longest = max([encoding.ids.shape[0], *(waiting.encoding.ids.shape[0] for waiting in batch)])
    return not batch or longest * (len(batch) + 1) <= limit


def _check_length(library: Library, choice: Choice, encoding: Encoding) -> None:
    if encoding.span > library.backbone.window:
        raise PromptTooLongError(
            f"document {choice.chunk.document_id} takes {encoding.span} positions, the model's window is "
            f"{library.backbone.window}: split the document, or show it as pages to a vision model"
        )


def _compile_batch(library: Library, batch: Sequence[_Waiting], write: Write) -> Iterator[tuple[Choice, Passage]]:
    frame = library.frame(write, batch[0].choice.representation)
    compiled = write_passages(library.backbone, [waiting.encoding for waiting in batch], frame)
    for waiting, kv in zip(batch, compiled, strict=True):
        choice, encoding = waiting.choice, waiting.encoding
        passage = Passage(choice.key, encoding.ids, encoding.positions, encoding.span, len(frame), kv)
        library.bank.put(passage, chunk=choice.chunk, representation=label(choice.representation), write=write.label)
        yield choice, passage
