"""A passage as the tensors and strings of one record, and back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvbind.bank.keys import FORMAT
from kvbind.bank.recordfile import damaged
from kvbind.bank.store import Record
from kvbind.errors import BankError
from kvbind.types import KV, Passage, StackedKV


def _stacked(kv: KV) -> tuple[Tensor, Tensor]:
    if isinstance(kv, StackedKV):
        return kv.keys, kv.values
    layers = range(kv.layers)
    return torch.stack([kv.k(layer) for layer in layers]), torch.stack([kv.v(layer) for layer in layers])


def _fault(ids: Tensor, keys: Tensor, values: Tensor) -> str | None:
    """What is wrong with the shapes of a passage's tensors, if anything."""
    if keys.ndim != 4 or keys.shape != values.shape:
        shapes = f"{tuple(keys.shape)} and {tuple(values.shape)}"
        return f"its keys and values must be (L, H, T, D) alike, and are {shapes}"
    if not keys.shape[0]:
        return "it has no layers"
    if ids.shape != keys.shape[2:3]:
        return f"it has {keys.shape[2]} rows of keys and values for token ids {tuple(ids.shape)}"
    return None


def passage_tensors(passage: Passage) -> dict[str, Tensor]:
    """ "ids" (T,), "positions" (A, T), "k" and "v" (L, H, T, D), and "x.<name>" for each extra."""
    if not passage.kv.layers:
        raise BankError(f"passage {passage.key} has no layers: compile it again")
    keys, values = _stacked(passage.kv)
    fault = _fault(passage.ids, keys, values)
    if fault is not None:
        raise BankError(f"passage {passage.key} cannot be stored ({fault}): compile it again")
    extras = {f"x.{name}": tensor for name, tensor in passage.extras.items()}
    return {"ids": passage.ids, "positions": passage.positions, "k": keys, "v": values, **extras}


def passage_meta(passage: Passage) -> dict[str, str]:
    """What a record says about its passage besides tensors."""
    return {
        "format": str(FORMAT),
        "span": str(passage.span),
        "origin": str(passage.origin),
        "rows": str(passage.rows),
        "layers": str(passage.kv.layers),
        "dtype": str(passage.kv.k(0).dtype).removeprefix("torch."),
    }


@dataclass(frozen=True)
class RecordKV:
    """Keys and values that stay in their record until asked for; DamagedRecordError when they are not right."""

    record: Record
    layers: int

    def k(self, layer: int) -> Tensor:
        """Keys (H, T, D) of one layer."""
        return self.record.part("k", layer)

    def v(self, layer: int) -> Tensor:
        """Values (H, T, D) of one layer."""
        return self.record.part("v", layer)

    def span(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """Keys and values (n, H, T, D) of some layers."""
        return self.record.span("k", first, last), self.record.span("v", first, last)


def read_passage(record: Record, *, lazily: bool = False) -> Passage:
    """The whole passage, each tensor verified; raises DamagedRecordError, also when a part is missing.

    `lazily`: keys and values stay in the record, each layer verified when it is read.
    """
    meta = record.meta
    key = meta["key"]
    try:
        span, origin = int(meta["span"]), int(meta["origin"])
        kv: KV | None = RecordKV(record, int(meta["layers"])) if lazily else None
    except (KeyError, ValueError) as error:
        raise damaged(key, "it does not describe a passage") from error
    ids, positions = record.tensor("ids"), record.tensor("positions")
    if kv is None:
        kv = StackedKV(record.tensor("k"), record.tensor("v"))
        fault = _fault(ids, kv.keys, kv.values)
        if fault is not None:
            raise damaged(key, fault)
    extras = {name[2:]: record.tensor(name) for name in record.names() if name.startswith("x.")}
    return Passage(key, ids, positions, span, origin, kv, extras)
