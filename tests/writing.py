"""Writers for tests: untrained ones with weights that make a forgotten one visible, in memory or in a folder."""

from pathlib import Path

import torch

from kvbind.models import TARGETS, Backbone, Writer, new_writer
from kvbind.writers import TrainedWriter, WriterConfig, save_writer

CONFIGS = {
    "sempic": WriterConfig("writer", rank=4, alpha=8, targets=TARGETS),
    "kv-packet": WriterConfig("packet", header=3, trailer=2),
    "joint": WriterConfig("joint", rank=4, alpha=8, targets=TARGETS, header=2, trailer=3),
}
METHODS = tuple(CONFIGS)


def drawn_writer(backbone: Backbone, method: str, seed: int = 0) -> Writer:
    """A writer of that method whose every weight is drawn: LoRA as it is made has B = 0."""
    writer = new_writer(backbone, f"drawn{len(backbone.adapters.names)}", CONFIGS[method], seed)
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: 0.15 * torch.randn(t.shape, generator=generator) for name, t in writer.tensors().items()}
    writer.fill(drawn)
    return writer


def drawn_folder(backbone: Backbone, method: str, folder: Path, seed: int = 0) -> TrainedWriter:
    """The folder of such a writer."""
    tensors = drawn_writer(backbone, method, seed).tensors()
    return save_writer(folder, CONFIGS[method], tensors, model=backbone.facts, training={})
