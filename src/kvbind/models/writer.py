"""A trained writer at work on a model: its LoRA, and its soft rows around each document."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbind.errors import ModelError
from kvbind.models.backbone import Backbone
from kvbind.writers import TrainedWriter, WriterConfig

SOFT_STD = 0.02
"""Standard deviation of new soft rows (KV Packet)."""


@dataclass(frozen=True, eq=False)
class Writer:
    """A writer on its backbone: the name of its LoRA there ("" for none), and its soft rows (n, C), float32."""

    backbone: Backbone
    adapter: str
    header: Tensor
    trailer: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """Its weights, as a writer folder holds them."""
        lora = self.backbone.adapters.state(self.adapter) if self.adapter else {}
        soft = {name: rows for name, rows in (("header", self.header), ("trailer", self.trailer)) if len(rows)}
        return {**{f"lora.{name}": tensor for name, tensor in lora.items()}, **soft}

    def parameters(self) -> list[Tensor]:
        """Its weights, which take gradients from now on."""
        lora = self.backbone.adapters.parameters(self.adapter) if self.adapter else []
        return [*lora, *(rows.requires_grad_() for rows in (self.header, self.trailer) if len(rows))]

    @torch.no_grad()
    def fill(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over weights of the same names and shapes; ModelError if they are not."""
        own = self.tensors()
        if own.keys() != tensors.keys() or any(own[name].shape != tensors[name].shape for name in own):
            raise ModelError("the writer's weights do not go with its writer.json: train it again")
        lora = {name.removeprefix("lora."): tensor for name, tensor in tensors.items() if name.startswith("lora.")}
        if self.adapter:
            self.backbone.adapters.load(self.adapter, lora)
        for name, rows in (("header", self.header), ("trailer", self.trailer)):
            if len(rows):
                rows.copy_(tensors[name])


def new_writer(backbone: Backbone, name: str, config: WriterConfig, seed: int = 0) -> Writer:
    """An untrained writer: its LoRA changes nothing yet, its soft rows are drawn from N(0, 0.02)."""
    generator = torch.Generator().manual_seed(seed)
    width = int(backbone.stack.config.hidden_size)

    def rows(count: int) -> Tensor:
        return (torch.randn(count, width, generator=generator) * SOFT_STD).to(backbone.device)

    if config.rank:
        backbone.adapters.add(name, config.rank, config.alpha, config.targets, seed)
    return Writer(backbone, name if config.rank else "", rows(config.header), rows(config.trailer))


def load_writer(backbone: Backbone, trained: TrainedWriter) -> Writer:
    """A trained writer on the model it was trained on, loaded once; ModelError on any other model."""
    check_writer(backbone, trained)
    known: dict[str, Writer] = backbone.adapters.writers
    with backbone.lock:
        if trained.digest not in known:
            writer = new_writer(backbone, trained.digest, trained.config)
            try:
                writer.fill(trained.tensors())
            except ModelError as error:
                raise ModelError(f"{trained.path}: {error}") from error
            known[trained.digest] = writer
        return known[trained.digest]


def check_writer(backbone: Backbone, trained: TrainedWriter) -> None:
    """ModelError, saying what differs, unless this is the model that the writer was trained on."""
    names = ["weights", "config", "tokenizer", *(["template"] if trained.config.frame == "template" else [])]
    own, theirs = backbone.facts, trained.model
    differing = [name for name in names if theirs.get(name) != own[name]]
    if differing == ["weights"] and theirs.get("dtype") != own["dtype"]:
        wanted = str(theirs.get("dtype")).removeprefix("torch.")
        raise ModelError(f"{trained.path} was trained on a model in {wanted}: load it so (--dtype {wanted})")
    if differing:
        raise ModelError(
            f"{trained.path} was trained on another model (other {', '.join(differing)}; it was "
            f"{theirs.get('source', 'not named')}): use it with that one, or train one for this model"
        )
