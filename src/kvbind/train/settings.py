"""What decides a training run's outcome."""

from dataclasses import asdict, dataclass, field
from typing import Any

from kvbind.errors import TrainingError
from kvbind.models import TARGETS
from kvbind.train.teacher import Teaching
from kvbind.writers import Frame, Kind, WriterConfig


@dataclass(frozen=True)
class Settings:
    """A writer's kind, its size, and how it is trained: the published values by default.

    `soft` rows before each document and as many after it (KV Packet and Joint), a LoRA of `rank` and `alpha` (SemPIC
    and Joint). AdamW without weight decay, `lr` falling linearly to 0 over all steps, gradients clipped to the norm
    `clip`. `batch` examples a step, `group` of them at a time. `checkpointing` saves memory and costs time.
    """

    kind: Kind
    epochs: int
    batch: int
    lr: float = 5e-4
    group: int = 4
    rank: int = 8
    alpha: float = 16.0
    soft: int = 8
    frame: Frame = "bare"
    clip: float = 1.0
    seed: int = 0
    checkpointing: bool = False
    teaching: Teaching = field(default_factory=Teaching)

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "group", "rank", "soft"):
            if getattr(self, name) < 1:
                raise TrainingError(f"{name}={getattr(self, name)}: give 1 or more")
        if not (0 < self.lr < 1 and self.clip > 0 and self.alpha > 0):
            raise TrainingError(
                f"lr={self.lr}, clip={self.clip}, alpha={self.alpha}: give positive numbers, lr below 1"
            )

    @property
    def config(self) -> WriterConfig:
        """The writer that is trained."""
        soft = 0 if self.kind == "writer" else self.soft
        if self.kind == "packet":
            return WriterConfig("packet", self.frame, header=soft, trailer=soft)
        return WriterConfig(self.kind, self.frame, self.rank, self.alpha, TARGETS, soft, soft)

    def facts(self) -> dict[str, Any]:
        """The settings, for a file."""
        return asdict(self)


EPOCHS = {"writer": 5, "packet": 30, "joint": 5}
"""The published lengths of training (SemPIC; KV Packet)."""
BATCH = {"writer": 16, "packet": 64, "joint": 16}
"""The published numbers of examples a step."""
