"""A trained writer on disk: a folder with its weights and what they were trained for.

`adapter.safetensors` holds float32 tensors: LoRA weights under ``lora.`` and PEFT's names, and the soft rows ``header``
and ``trailer``, (n, C) each. `writer.json` says how they are used, and for which model.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import safetensors.torch
from torch import Tensor

from kvbind.errors import ModelError
from kvbind.files import write_file

Kind = Literal["writer", "packet", "joint"]
Frame = Literal["bare", "template"]

FORMAT = 1
WRITER_FACTS, WEIGHTS = "writer.json", "adapter.safetensors"
MADE_BY = "give a folder that `kvbind train` made"


@dataclass(frozen=True)
class WriterConfig:
    """What a writer is, besides its weights: everything else that its passages' numbers depend on.

    `rank` and `alpha` of the LoRA on the projections `targets` (rank 0: none), `header` and `trailer` soft rows before
    and after each document, and the `frame` that documents are compiled in.
    """

    kind: Kind
    frame: Frame = "bare"
    rank: int = 0
    alpha: float = 0.0
    targets: tuple[str, ...] = ()
    header: int = 0
    trailer: int = 0


@dataclass(frozen=True)
class TrainedWriter:
    """A writer folder, read: two are equal if their passages are, wherever they lie.

    `digest` is the SHA-256 over its config and the bytes of its weights, `model` the facts of the model it was trained
    on, `training` those of its training.
    """

    digest: str
    path: Path = field(compare=False)
    config: WriterConfig = field(compare=False)
    model: Mapping[str, Any] = field(compare=False)
    training: Mapping[str, Any] = field(compare=False)

    def tensors(self) -> dict[str, Tensor]:
        """Its weights by name; ModelError if they are no longer those that `digest` stands for."""
        data = _read(self.path / WEIGHTS)
        if _digest(self.config, data) != self.digest:
            raise ModelError(f"{self.path}: its weights have changed since they were looked at: run this again")
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
        return tensors


def read_writer(folder: str | Path) -> TrainedWriter:
    """The writer of a folder; ModelError if there is none, or one that is damaged or of another version."""
    path = Path(folder).expanduser()
    data = _read(path / WRITER_FACTS)
    try:
        facts = json.loads(data)
        version = facts["format"]
        config = WriterConfig(**{**facts["config"], "targets": tuple(facts["config"]["targets"])})
        weights, model, training = facts["weights"], dict(facts["model"]), dict(facts["training"])
        if config.kind not in get_args(Kind) or config.frame not in get_args(Frame):
            raise ValueError(config)
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path / WRITER_FACTS} does not describe a writer: {MADE_BY}") from error
    if version != FORMAT:
        raise ModelError(f"{path} is a writer of format {version}, this version reads {FORMAT}: train it again")
    tensors = _read(path / WEIGHTS)
    if hashlib.sha256(tensors).hexdigest() != weights:
        raise ModelError(
            f"{path}: {WEIGHTS} is not the one that {WRITER_FACTS} was written for: copy both, or train again"
        )
    return TrainedWriter(_digest(config, tensors), path.resolve(), config, model, training)


def save_writer(
    folder: Path,
    config: WriterConfig,
    tensors: Mapping[str, Tensor],
    *,
    model: Mapping[str, Any],
    training: Mapping[str, Any],
) -> TrainedWriter:
    """Write a writer folder; a crash in between leaves one that `read_writer` refuses."""
    data = safetensors.torch.save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    facts = {
        "format": FORMAT,
        "config": vars(config),
        "weights": hashlib.sha256(data).hexdigest(),
        "model": dict(model),
        "training": dict(training),
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / WEIGHTS, [data])
    write_file(folder / WRITER_FACTS, [(json.dumps(facts, indent=2) + "\n").encode()])
    return read_writer(folder)


def _digest(config: WriterConfig, weights: bytes) -> str:
    facts = json.dumps([FORMAT, vars(config), hashlib.sha256(weights).hexdigest()], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {path} ({error.strerror}): {MADE_BY}") from error
