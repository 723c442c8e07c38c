"""Shared fixtures: tiny random models of every family, built once per test run."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tiny
from kvbind.models import Backbone, load_backbone

torch.set_num_threads(1)  # tests run in parallel processes

Load = Callable[..., Backbone]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model by name."""
    root = tmp_path_factory.getbasetemp().parent / "tiny-models"
    return lambda name: tiny.folder(name, root)


@pytest.fixture
def fresh(models: Callable[[str], Path]) -> Load:
    """Models that no other test sees: adapters stay on a model once they are there."""
    return lambda name, dtype="float32": load_backbone(models(name), dtype=dtype)


@pytest.fixture(scope="session")
def load(models: Callable[[str], Path]) -> Load:
    """A tiny model as a backbone, loaded once per name and number format."""
    loaded: dict[tuple[str, str], Backbone] = {}

    def get(name: str, dtype: str = "float32") -> Backbone:
        if (name, dtype) not in loaded:
            loaded[name, dtype] = load_backbone(models(name), dtype=dtype)
        return loaded[name, dtype]

    return get
