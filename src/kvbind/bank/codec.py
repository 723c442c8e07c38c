"""A passage as the tensors and strings of one record, and back."""

from dataclasses import dataclass

from torch import Tensor

from kvbind.bank.keys import FORMAT
from kvbind.bank.recordfile import damaged
from kvbind.bank.store import Record
from kvbind.errors import BankError
from kvbind.types import Passage


@dataclass(frozen=True)
class LayeredKV:
    """Keys and values of each layer, (H, T, D) each, in tensors of their own."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return len(self.keys)

    def k(self, layer: int) -> Tensor:
        """Keys (H, T, D) of one layer."""
        return self.keys[layer]

    def v(self, layer: int) -> Tensor:
        """Values (H, T, D) of one layer."""
        return self.values[layer]


def passage_tensors(passage: Passage) -> dict[str, Tensor]:
    """ "ids", "positions", "k.<layer>" and "v.<layer>" (H, T, D), and "x.<name>" for each extra."""
    tensors = {"ids": passage.ids, "positions": passage.positions}
    if not passage.kv.layers:
        raise BankError(f"passage {passage.key} has no layers: compile it again")
    for layer in range(passage.kv.layers):
        tensors[f"k.{layer}"], tensors[f"v.{layer}"] = passage.kv.k(layer), passage.kv.v(layer)
    return tensors | {f"x.{name}": tensor for name, tensor in passage.extras.items()}


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


def read_passage(record: Record) -> Passage:
    """The whole passage, each tensor verified; raises DamagedRecordError, also when a part is missing."""
    meta = record.meta
    key = meta["key"]
    try:
        span, origin, layers = int(meta["span"]), int(meta["origin"]), range(int(meta["layers"]))
    except (KeyError, ValueError) as error:
        raise damaged(key, "it does not describe a passage") from error
    pairs = [(record.tensor(f"k.{layer}"), record.tensor(f"v.{layer}")) for layer in layers]
    return Passage(
        key=key,
        ids=record.tensor("ids"),
        positions=record.tensor("positions"),
        span=span,
        origin=origin,
        kv=LayeredKV(tuple(k for k, _ in pairs), tuple(v for _, v in pairs)),
        extras={name[2:]: record.tensor(name) for name in record.names() if name.startswith("x.")},
    )
