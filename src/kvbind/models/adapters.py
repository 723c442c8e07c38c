"""LoRA adapters on a decoder stack, through PEFT: off unless a writer is at work."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from kvbind.errors import ModelError

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
"""The projections of a decoder layer that a writer's LoRA adapts (SemPIC); never those of a vision tower."""


class Adapters:
    """The adapters on one decoder stack, by name, in float32; at most one is on.

    Modules are shared, so that an adapter which is on is on for every thread: the backbone's lock keeps others out.
    """

    def __init__(self, stack: Any) -> None:
        self.stack = stack
        self.layers: list[Any] = []
        self.names: list[str] = []
        self.trainable: list[str] = []
        self.active = ""
        self.writers: dict[str, Any] = {}  # those loaded so far, by digest

    def add(self, name: str, rank: int, alpha: float, targets: tuple[str, ...] = TARGETS, seed: int = 0) -> None:
        """Put a new adapter on the stack, off, that changes nothing yet: A drawn from `seed`, B zero."""
        peft = _peft()
        config = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets))
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.filterwarnings("ignore", message="Already found a `peft_config`")  # a second adapter is meant
            torch.manual_seed(seed)
            peft.inject_adapter_in_model(config, self.stack, name)
        kind = peft.tuners.tuners_utils.BaseTunerLayer
        self.layers = [module for module in self.stack.modules() if isinstance(module, kind)]
        self.names.append(name)
        for layer in self.layers:
            for weights in (layer.lora_A, layer.lora_B):
                weights[name].float()
        self._switch(self.active)

    def state(self, name: str) -> dict[str, Tensor]:
        """An adapter's weights, by PEFT's names."""
        state: dict[str, Tensor] = _peft().functional.get_peft_model_state_dict(self.stack, adapter_name=name)
        return state

    def load(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Fill an adapter's weights; ModelError if a name or shape differs."""
        if {key: value.shape for key, value in self.state(name).items()} != {k: v.shape for k, v in state.items()}:
            raise ModelError("the adapter's weights are not of this model's shapes: train it again")
        _peft().functional.set_peft_model_state_dict(self.stack, dict(state), adapter_name=name)

    def parameters(self, name: str) -> list[torch.nn.Parameter]:
        """An adapter's weights, which take gradients from now on."""
        self.trainable = [*self.trainable, name]
        self._switch(self.active)
        return [weights[name].weight for layer in self.layers for weights in (layer.lora_A, layer.lora_B)]

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Switch an adapter on for the block ("" for none), and back to what was on before."""
        before = self.active
        self._switch(name)
        try:
            yield
        finally:
            self._switch(before)

    def _switch(self, name: str) -> None:
        self.active = name
        for layer in self.layers:
            layer.enable_adapters(bool(name))
            if name:
                layer.set_adapter([name])
            # PEFT switches gradients along with adapters, but a loss reaches a writer's weights when it is off again.
            layer.set_requires_grad(self.names, requires_grad=False)
            layer.set_requires_grad(self.trainable, requires_grad=True)


def base_state(model: torch.nn.Module) -> dict[str, Tensor]:
    """A model's own weights by their own names, whatever adapters were put on it."""
    state = model.state_dict()
    return {name.replace(".base_layer.", "."): tensor for name, tensor in state.items() if ".lora_" not in name}


def _peft() -> Any:
    try:
        import peft
        import peft.functional
        import peft.tuners.tuners_utils
    except ImportError as error:
        raise ModelError('a trained writer needs PEFT: pip install "kvbind[train]"') from error
    return peft
