"""Fetching passages from the bank, and compiling those that are not there."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvbind.errors import KvbindError
from kvbind.methods import Method, Write
from kvbind.steps.clock import Stopwatch
from kvbind.steps.library import Library
from kvbind.steps.plan import Choice
from kvbind.steps.write import add_soft_rows, write_passages
from kvbind.types import Encoding, Passage, label

# Rows of one compile batch. A GPU needs many to be busy; a CPU is busy with few, and progress shows sooner.
BATCH_ROWS = {"cuda": 8192, "cpu": 1024}

MOST_OPEN = 64
"""Requests of more passages are read whole: each that is read layer by layer holds a file open."""


def fetch(
    library: Library, choices: Sequence[Choice], method: Method, *, lazily: bool = False
) -> tuple[list[Passage], list[bool]]:
    """Passages of a request, in order, and which were in the bank; the others are compiled now and kept.

    `lazily`: keys and values that are not in memory stay in their records, for a feed to bring in layer by layer.
    """
    assert method.write is not None
    take = library.bank.peek if lazily and len(choices) <= MOST_OPEN else library.bank.get
    found: dict[str, Passage] = {}
    for choice in choices:
        if choice.key not in found and (passage := take(choice.key)) is not None:
            found[choice.key] = passage
    hits = [choice.key in found for choice in choices]
    for choice in choices:
        if choice.key in found:  # perhaps through another document of the same content
            shown = label(choice.representation)
            library.bank.ensure_link(choice.key, choice.chunk, shown, method.write.label, found[choice.key].rows)
    missing = [choice for choice, hit in zip(choices, hits, strict=True) if not hit]
    for choice, passage in compile_choices(library, missing, method.write):
        found[choice.key] = passage
    return [found[choice.key] for choice in choices], hits


@dataclass(frozen=True)
class _Waiting:
    choices: list[Choice]  # of one key: documents may share content
    encoding: Encoding


def compile_choices(library: Library, choices: Iterable[Choice], write: Write) -> Iterator[tuple[Choice, Passage]]:
    """Compile chunks in batches, storing each passage whole before it is handed out.

    A chunk that cannot be compiled raises when all before it are stored.
    """
    limit = BATCH_ROWS.get(library.backbone.device.type, BATCH_ROWS["cuda"])
    batches: dict[str, dict[str, _Waiting]] = {}  # by representation: pages of two resolutions differ too much
    refusal: KvbindError | None = None
    for item in _encode(library, choices, write):
        if isinstance(item, KvbindError):
            refusal = item
            break
        first = item.choices[0]
        batch = batches.setdefault(label(first.representation), {})
        if first.key in batch:
            batch[first.key].choices.append(first)
            continue
        if not _fits(batch.values(), item.encoding, limit):
            yield from _compile_batch(library, list(batch.values()), write)
            batch.clear()
        batch[first.key] = item
    for batch in filter(None, batches.values()):
        yield from _compile_batch(library, list(batch.values()), write)
    if refusal is not None:
        raise refusal


def _encode(library: Library, choices: Iterable[Choice], write: Write) -> Iterator[_Waiting | KvbindError]:
    """Each chunk encoded; the first that cannot be ends it with its error."""
    try:
        for choice in choices:
            encoding = library.encode(choice.chunk, choice.representation)
            if write.writer is not None:
                encoding = add_soft_rows(encoding, write.writer.config.header, write.writer.config.trailer)
            library.check_span(choice.chunk.document_id, encoding.span)
            yield _Waiting([choice], encoding)
    except KvbindError as error:
        yield error


def _fits(batch: Collection[_Waiting], encoding: Encoding, limit: int) -> bool:
    longest = max([encoding.ids.shape[0], *(waiting.encoding.ids.shape[0] for waiting in batch)])
    return not batch or longest * (len(batch) + 1) <= limit


def _compile_batch(library: Library, batch: Sequence[_Waiting], write: Write) -> Iterator[tuple[Choice, Passage]]:
    frame = library.frame(write, batch[0].choices[0].representation)
    encodings, writer = [waiting.encoding for waiting in batch], library.writer(write)
    watch = Stopwatch(library.backbone.device)
    with watch.step("write"):
        compiled = write_passages(library.backbone, encodings, frame, writer)
    if batch[0].encoding.pixels is None:  # else the vision tower's time would count as the language model's
        lengths = [encoding.ids.shape[0] + len(frame) for encoding in encodings]
        library.speeds.saw_pass(sum(lengths), max(lengths), watch.seconds["write"])
    for waiting, kv in zip(batch, compiled, strict=True):
        key, encoding = waiting.choices[0].key, waiting.encoding
        passage = Passage(key, encoding.ids, encoding.positions, encoding.span, len(frame), kv)
        for choice in waiting.choices:
            shown = label(choice.representation)
            library.bank.put(passage, chunk=choice.chunk, representation=shown, write=write.label)
        yield waiting.choices[0], passage
