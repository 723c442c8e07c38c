"""The same code on a GPU, where there is one."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conversations import CARD, DOCUMENTS, QUESTION, SHOWN, spelled
from kvbind import Engine, Sampling

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize(("name", "dpi"), SHOWN)
@pytest.mark.parametrize("method", ["full", "prefix-free", "template", "epic:k=2", "cacheblend:1", "qcfuse:1"])
def test_a_gpu_reads_what_a_cpu_reads(models: Callable[[str], Path], name: str, dpi: int, method: str) -> None:
    logits = []
    for device in ("cpu", "cuda"):
        engine = Engine.from_pretrained(models(name), device=device, dtype="float32", page=CARD, weigh=False)
        chat = engine.chat(method=spelled(method, dpi))
        answer = chat.ask(QUESTION, DOCUMENTS, sampling=Sampling(max_tokens=8), explain=True)
        assert answer.finish
        logits.append(chat.turn.logits.cpu())
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-3, atol=5e-3)
