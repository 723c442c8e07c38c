"""The model under training: its optimisers, its levels, its running means, and how it reads a batch."""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import forward
import torch
from batches import TEXT, Batch
from glyphs import Namer, naming
from model import DPIS, PROCESSOR, build
from muon import Muon
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

STD = PROCESSOR["image_std"][0]


class Reader:
    """The model with its training state: optimisers, levels, running means, and the seeds used up."""

    def __init__(self, tokenizer: Any, arguments: argparse.Namespace) -> None:
        self.device = torch.device(arguments.device)
        self.model = build(tokenizer, arguments.size)
        scale(self.model)
        self.model.to(self.device).train()
        self.namer = Namer(self.model.config.text_config.hidden_size).to(self.device)
        self.optimizers = optimizers(self.model, self.namer, arguments)
        self.level = {TEXT: 0, **dict.fromkeys(DPIS, -1)}
        self.mean: dict[str, float] = {}
        self.step, self.begun, self.seconds = 0, 0, 0.0  # `begun`: the step at which the optimisers were new

    @property
    def stack(self) -> Any:
        """The decoder stack."""
        return self.model.model.language_model

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint holds."""
        return {
            "model": self.model.state_dict(),
            "namer": self.namer.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "rest": {name: getattr(self, name) for name in ("level", "mean", "step", "begun", "seconds")},
        }

    def write_start(self, folder: Path) -> None:
        """Write what another machine needs, beside the model, to go on: the namer, and the levels."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().cpu().bfloat16() for name, value in self.namer.state_dict().items()}
        save_file(tensors, folder / "namer.safetensors")
        rest = {"level": list(self.level.items()), "mean": self.mean, "step": self.step, "seconds": self.seconds}
        (folder / "state.json").write_text(json.dumps(rest, indent=2) + "\n")

    def read_start(self, folder: Path, model: Path) -> None:
        """Go on from a model folder and what `write_start` wrote beside it, with new optimisers."""
        grow(self.model, type(self.model).from_pretrained(model, dtype=torch.float32).state_dict())
        self.namer.load_state_dict(load_file(folder / "namer.safetensors"))
        rest = json.loads((folder / "state.json").read_text())
        self.level, self.mean = dict(rest["level"]), rest["mean"]
        self.step, self.begun, self.seconds = rest["step"], rest["step"], rest["seconds"]

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.model.load_state_dict(state["model"])
        self.namer.load_state_dict(state["namer"])
        for optimizer, held in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(held)
        for name, value in state["rest"].items():
            setattr(self, name, value)

    def note(self, name: str, value: float, weight: float = 0.03) -> None:
        """Move a running mean."""
        self.mean[name] = self.mean.get(name, value) * (1 - weight) + value * weight


@torch.no_grad()
def scale(model: Any) -> None:
    """Start from tokens of size one and layers that add a third of it; visual tokens as large as text tokens."""
    stack, visual = model.model.language_model, model.model.visual
    stack.embed_tokens.weight.normal_(std=1.0)
    for layer in stack.layers:
        layer.post_self_attn_layernorm.weight.fill_(0.3)
        layer.post_mlp_layernorm.weight.fill_(0.3)
    visual.embeddings.position_embedding.weight.normal_(std=0.1)
    page = torch.randint(0, 256, (4, 84, 336), dtype=torch.uint8)
    seen = forward.see(visual, normalised(page), *forward.places(visual, 6, 24))
    visual.merger.down_proj.weight.div_(seen.std())


@torch.no_grad()
def grow(model: Any, weights: dict[str, Tensor]) -> None:
    """Take over the weights of a model that may have fewer vision blocks; what is new begins as the identity."""
    model.load_state_dict(weights, strict=False)
    for number, block in enumerate(model.model.visual.blocks):
        if f"model.visual.blocks.{number}.norm1.weight" not in weights:
            block.attn.proj.weight.zero_()
            block.mlp.down_proj.weight.zero_()


def optimizers(model: Any, namer: Namer, arguments: argparse.Namespace) -> list[Any]:
    """Muon for the layers' matrices, AdamW for everything else."""
    parts = {"gate_up_proj": 2, "qkv": 3}
    matrices, rest = [], list(namer.parameters())
    for name, parameter in model.named_parameters():
        inside = ".layers." in name or ".blocks." in name or ".merger." in name
        if inside and parameter.ndim == 2:
            share = arguments.vision_rate if ".visual." in name else 1.0
            matrices.append((parameter, next((n for key, n in parts.items() if key in name), 1), share))
        else:
            rest.append(parameter)
    adam = torch.optim.AdamW(rest, lr=arguments.lr, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
    return [Muon(matrices, lr=arguments.lr), adam]


def normalised(pages: Tensor) -> Tensor:
    """Pages (N, H, W) in grey levels as the processor's patches (N, P, 196)."""
    return (forward.patches(pages).float() / 255 - 1) / STD


def look(reader: Reader, pages: dict[int, Tensor]) -> dict[int, Tensor]:
    """Visual tokens (N, P, C) of pages by DPI."""
    visual = reader.model.model.visual
    return {
        dpi: forward.see(
            visual,
            normalised(drawn.to(reader.device)),
            *forward.places(visual, drawn.shape[1] // 14, drawn.shape[2] // 14),
        )
        for dpi, drawn in pages.items()
    }


def run(reader: Reader, batch: Batch) -> tuple[Tensor, dict[str, list[float]], Tensor | None]:
    """Loss of a batch, whole answers right by group, and the loss of naming its glyphs."""
    device, stack = reader.device, reader.stack
    features = look(reader, batch.pages)
    x = stack.embed_tokens(batch.ids.to(device))
    for dpi, seen in features.items():
        x = x.masked_scatter(batch.image[dpi].to(device)[..., None], seen.flatten(0, 1).to(x.dtype))
    cos, sin = forward.rotary(stack, batch.positions.to(device))
    x = forward.decode_rows(stack, x, cos, sin, forward.seen_mask(batch.branch.to(device)))
    wanted = (batch.labels >= 0).to(device)
    labels, weight = (part.to(device)[wanted] for part in (batch.labels, batch.weight))
    logits = reader.model.lm_head(x[wanted]).float()
    loss = (cross_entropy(logits, labels, reduction="none") * weight).sum() / weight.sum()
    wrong = torch.zeros(len(batch.group) + 1, device=device)
    wrong.index_add_(0, batch.asked.to(device)[wanted], (logits.argmax(-1) != labels).float())
    right: dict[str, list[float]] = defaultdict(list)
    for key, misses in zip(batch.group, wrong[1:].tolist(), strict=True):
        right[key].append(float(misses == 0))
    named = None
    if batch.pages:
        named, shares = naming(reader.namer, stack.embed_tokens.weight, features, batch.marks)
        for name, share in shares.items():
            reader.note(name, share)
    return loss, right, named
