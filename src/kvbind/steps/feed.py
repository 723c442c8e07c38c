"""The pipeline between the bank and the reader: while one layer computes, the next ones are read."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from kvbind.models import Backbone, Context
from kvbind.steps.layout import Segment
from kvbind.steps.library import Library
from kvbind.steps.stitch import Stitched, place_layers
from kvbind.types import KV, Passage, StackedKV

AHEAD = 2
"""Groups of layers that may wait for the reader: no more are read until it has taken one."""

GROUP_BYTES = 4 << 20
"""A group has as many layers as make up this many bytes: reading a little at a time costs more than it hides."""

Loaded = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Placement:
    """A passage that is read while it is needed: the segment it fills, its shift; `keep` takes it when whole."""

    segment: Segment
    kv: KV
    shift: int
    keep: Callable[[StackedKV], None] | None = None


@dataclass
class Loading:
    """Bytes read from the bank beside the computation, the seconds that took, and those the reader waited for it."""

    bytes: int = 0
    seconds: float = 0.0
    waited: float = 0.0


class Feed:
    """Brings the stored rows of a request into its context, group of layers by group of layers, in a thread.

    `place(layer)` returns when the layer's stored rows are in the context; layers come in order. Leaving the block
    stops the thread, whatever it was at. An error of the thread is raised by `place`.
    """

    def __init__(
        self,
        backbone: Backbone,
        context: Context,
        placements: Sequence[Placement],
        *,
        ahead: int = AHEAD,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self.backbone, self.context, self.placements = backbone, context, placements
        self.loading = Loading()
        self._group = _layers_of_a_group(context, placements, group_bytes)
        self._ready: queue.Queue[tuple[int, Loaded] | BaseException] = queue.Queue(ahead)
        self._stopped = threading.Event()
        # Not a daemon: one that still fills the hot tier when the interpreter ends would abort it.
        self._thread = threading.Thread(target=self._run, name="kvbind-feed")
        self._placed = 0
        self._failed: BaseException | None = None

    def __enter__(self) -> Self:
        if self.placements:
            self._thread.start()
        else:
            self._placed = self.context.layers
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._placed < self.context.layers:
            self._thread.join()

    def place(self, layer: int) -> None:
        """Wait until this layer's stored rows are there, and put them into the context."""
        while self._placed <= layer:
            if self._failed is not None:
                raise self._failed
            start = time.perf_counter()
            item = self._ready.get()
            self.loading.waited += time.perf_counter() - start
            if isinstance(item, BaseException):
                self._failed = item
                continue
            first, loaded = item
            for placement, (keys, values) in zip(self.placements, loaded, strict=True):
                place_layers(self.backbone, self.context, placement.segment, first, keys, values, placement.shift)
            self._placed = first + loaded[0][0].shape[0]

    def _run(self) -> None:
        try:
            kept: list[Loaded] = [[] for _ in self.placements]
            for first in range(0, self.context.layers, self._group):
                loaded = self._load(first, min(first + self._group, self.context.layers))
                if loaded is None or not self._put((first, loaded)):
                    return
                for placement, parts, part in zip(self.placements, kept, loaded, strict=True):
                    if placement.keep is not None:
                        parts.append(part)
            for placement, parts in zip(self.placements, kept, strict=True):
                if placement.keep is not None:
                    keys, values = zip(*parts, strict=True)
                    placement.keep(StackedKV(torch.cat(keys), torch.cat(values)))
        except BaseException as error:  # handed to the reader, whose thread may do something about it
            self._put(error)

    def _load(self, first: int, last: int) -> Loaded | None:
        """Some layers of every placement, each passage read once; None if the reader has left meanwhile."""
        start = time.perf_counter()
        read: dict[int, tuple[Tensor, Tensor]] = {}
        for placement in self.placements:
            if self._stopped.is_set():
                return None
            if id(placement.kv) not in read:
                read[id(placement.kv)] = placement.kv.span(first, last)
        self.loading.seconds += time.perf_counter() - start
        self.loading.bytes += sum(keys.nbytes + values.nbytes for keys, values in read.values())
        return [read[id(placement.kv)] for placement in self.placements]

    def _put(self, item: tuple[int, Loaded] | BaseException) -> bool:
        """Hand an item over, waiting for room; false if the reader has left."""
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=0.05)
            except queue.Full:
                continue
            return True
        return False


def _layers_of_a_group(context: Context, placements: Sequence[Placement], group_bytes: int) -> int:
    rows = sum(placement.segment.ids.shape[0] for placement in placements)
    layer = 2 * rows * context.heads * context.dim * context.dtype.itemsize
    return max(1, min(context.layers, group_bytes // max(layer, 1)))


def placements(library: Library, request: Stitched) -> list[Placement]:
    """What a feed has to bring for a request: passages that are not in memory; the bank may keep them there then."""
    return [
        Placement(segment, passage.kv, segment.anchor - passage.origin, _keeper(library, passage))
        for segment, passage in zip(request.segments, request.passages, strict=True)
        if not passage.in_memory
    ]


def _keeper(library: Library, passage: Passage) -> Callable[[StackedKV], None] | None:
    bank = library.bank
    if not bank.keeps_hot(passage.rows * library.backbone.row_bytes):
        return None
    epoch = bank.hot_epoch
    return lambda kv: bank.warm(replace(passage, kv=kv), epoch)
