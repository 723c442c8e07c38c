"""Which layers tell best what matters."""

from pathlib import Path

import pytest
import torch

from conftest import Load
from conversations import CARD, DOCUMENTS, QUESTION, SIMPLE, full_request, library, spelled
from kvbind import Bank, Engine, Sampling
from kvbind.errors import MethodError
from kvbind.methods.selectors import Probe, largest, share_of
from kvbind.steps import profile as step
from kvbind.steps.companions import critical_layers
from kvbind.steps.profile import LayerProfile, attention_under_full_prefill, profile_layers
from tiny import TEXT

QUESTIONS = [QUESTION, "How many dogs are there?"]


@pytest.mark.parametrize("name", TEXT)
def test_attention_under_full_prefill_is_what_transformers_reports(load: Load, name: str) -> None:
    lib = library(load(name))
    layout = full_request(lib, SIMPLE, 0).layout
    with torch.no_grad():
        found = attention_under_full_prefill(lib, layout)
        config = lib.backbone.stack.config
        before = config._attn_implementation
        config._attn_implementation = "eager"
        try:
            output = lib.backbone.model(
                input_ids=layout.ids[None], position_ids=layout.positions, output_attentions=True, use_cache=False
            )
        finally:
            config._attn_implementation = before
    question = layout.segments[-1].rows
    expected = torch.stack([layer[0, :, question].mean(dim=(0, 1)) for layer in output.attentions]).mean(dim=0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_a_layer_that_decides_alone_is_ranked_first(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Truth replaced by what one layer's probe says: that layer agrees wholly, the others do not."""
    engine = Engine(load("llama"))
    engine.compile(DOCUMENTS, "qcfuse")
    seen: list[torch.Tensor] = []
    probed = step.probe_layers

    def spy(*arguments: object) -> list[torch.Tensor]:
        seen[:] = probed(*arguments)  # type: ignore[arg-type]
        return list(seen)

    monkeypatch.setattr(step, "probe_layers", spy)
    profile_layers(engine.library, engine.method("qcfuse"), [SIMPLE], 0.3)
    truth = seen[1]
    monkeypatch.setattr(step, "attention_under_full_prefill", lambda *_: truth)
    found = profile_layers(engine.library, engine.method("qcfuse"), [SIMPLE], 0.3)
    assert found.ranking[0] == 1
    assert found.agreement[1] == 1
    rows = truth.nonzero()[:, 0]
    count = share_of(len(rows), 0.3)
    both = set(largest(truth[rows], count).tolist()) & set(largest(seen[0][rows], count).tolist())
    assert found.agreement[0] == pytest.approx(len(both) / count) != 1


def test_a_profile_stays_with_bank_and_model(load: Load, tmp_path: Path) -> None:
    probe = Probe("norm", 0.15, count=2)
    with Bank.open(tmp_path) as bank:
        engine = Engine(load("qwen3"), bank)
        engine.compile(DOCUMENTS, "qcfuse")
        depth = engine.backbone.shape[0]
        assert critical_layers(engine.library, probe)[0] == depth // 2, "without a profile: the middle"
        told: list[int] = []
        found = engine.profile_layers(QUESTIONS, progress=told.append)
        assert told == [1, 2]
        assert sorted(found.ranking) == list(range(depth))
        assert all(0 <= share <= 1 for share in found.agreement)
    with Bank.open(tmp_path) as bank:
        again = Engine(load("qwen3"), bank)
        assert critical_layers(again.library, probe) == tuple(found.ranking[:2])
        assert critical_layers(Engine(load("llama"), bank).library, probe)[0] == load("llama").shape[0] // 2
        assert critical_layers(again.library, Probe("norm", 0.15, layers=(0,))) == (0,)
        assert again.ask(QUESTION, method="qcfuse", sampling=Sampling(max_tokens=1)).tokens["recomputed"] > 0


def test_pages_can_be_profiled(load: Load) -> None:
    engine = Engine(load("glm4v"), page=CARD)
    method = spelled("qcfuse-view", 72)
    engine.compile(DOCUMENTS, method)
    assert len(engine.profile_layers(QUESTIONS[:1], method=method).agreement) == engine.backbone.shape[0]


def test_of_equal_layers_the_earlier_comes_first() -> None:
    assert LayerProfile((0.3, 0.5, 0.5), 0.3, 1).ranking == [1, 2, 0]


def test_what_cannot_be_profiled(load: Load) -> None:
    engine = Engine(load("llama"))
    with pytest.raises(MethodError, match="epic looks at no layer in particular"):
        engine.profile_layers(QUESTIONS, method="epic")
    with pytest.raises(MethodError, match="no questions"):
        engine.profile_layers([])
