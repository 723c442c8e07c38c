"""Which layers tell best what matters."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import Load
from conversations import CARD, DOCUMENTS, QUESTION, SIMPLE, full_request, library, spelled
from kvbind import Bank, Document, Engine, Method, Sampling
from kvbind.errors import MethodError, PromptTooLongError
from kvbind.methods.selectors import Probe, largest, share_of
from kvbind.steps import profile as step
from kvbind.steps.companions import critical_layers
from kvbind.steps.library import Library
from kvbind.steps.probe import importance
from kvbind.steps.profile import LayerProfile, attention_under_full_prefill, layer_scores, profile_layers
from kvbind.steps.stitch import Stitched
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

    def spy(*arguments: object) -> list[torch.Tensor]:
        seen[:] = layer_scores(*arguments)  # type: ignore[arg-type]
        return list(seen)

    monkeypatch.setattr(step, "layer_scores", spy)
    profile_layers(engine.library, engine.method("qcfuse"), [SIMPLE], 0.3)
    chunks = full_request(library(load("llama")), SIMPLE, 0).layout.chunks
    rows = torch.cat([torch.arange(segment.rows.start, segment.rows.stop) for segment in chunks])
    truth = torch.zeros(int(rows[-1]) + 1)
    truth[rows] = seen[1]
    monkeypatch.setattr(step, "attention_under_full_prefill", lambda *_: truth)
    found = profile_layers(engine.library, engine.method("qcfuse"), [SIMPLE], 0.3)
    assert found.ranking[0] == 1
    assert found.agreement[1] == 1
    count = share_of(len(rows), 0.3)
    both = set(largest(seen[1], count).tolist()) & set(largest(seen[0], count).tolist())
    assert found.agreement[0] == pytest.approx(len(both) / count) != 1


@pytest.mark.parametrize("spelling", ["qcfuse", "qcfuse-view"])
@pytest.mark.parametrize(("name", "dpi"), [("qwen3", 0), ("glm4v", 72)])
def test_layers_are_probed_as_requests_probe_them(
    load: Load, name: str, dpi: int, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib, method, requests = library(load(name)), spelled(spelling, dpi), []
    lib.bank.set_setting(lib.profile_name, {"ranking": [lib.backbone.shape[0] - 1]})

    def spy(library: Library, method: Method, request: Stitched) -> list[torch.Tensor]:
        requests.append((request, layer_scores(library, method, request)))
        return requests[-1][1]

    monkeypatch.setattr(step, "layer_scores", spy)
    profile_layers(lib, method, [SIMPLE], 0.3)
    assert method.selector is not None
    assert method.selector.probe is not None
    ((request, scores),) = requests
    for layer, score in enumerate(scores):
        probe = replace(method.selector.probe, layers=(layer,))
        expected = importance(lib, replace(method, selector=replace(method.selector, probe=probe)), request)
        rows = torch.cat([torch.arange(segment.rows.start, segment.rows.stop) for segment in request.segments])
        torch.testing.assert_close(score, expected[rows])


@pytest.mark.parametrize("method", ["qcfuse", "qcfuse-view"])
def test_a_profile_leaves_nothing_but_its_ranking(load: Load, method: str) -> None:
    engine = Engine(load("llama"))
    engine.compile(DOCUMENTS, "qcfuse")
    engine.ask(QUESTION, sampling=Sampling(max_tokens=1))  # the head is kept
    before = list(engine.bank.store.keys())
    engine.profile_layers(QUESTIONS, method=method)
    assert list(engine.bank.store.keys()) == before
    assert engine.library.ranked_layers


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


@pytest.mark.parametrize("ratio", [0.0, 1.0, 5.0, -1.0, math.nan])
def test_a_ratio_that_tells_nothing_is_refused(load: Load, ratio: float) -> None:
    engine = Engine(load("llama"))
    engine.compile(DOCUMENTS, "qcfuse")
    with pytest.raises(MethodError, match=f"ratio={ratio:g}: give the share"):
        engine.profile_layers(QUESTIONS, ratio=ratio)
    assert engine.library.ranked_layers == []


def test_the_smallest_ratio_still_looks_for_a_row(load: Load) -> None:
    found = profile_layers(library(load("llama")), spelled("qcfuse", 0), [SIMPLE], 1e-12)
    assert set(found.agreement) <= {0.0, 1.0}


def test_a_prompt_beyond_the_window_is_refused(load: Load) -> None:
    engine = Engine(load("llama"))
    text = "The storm arrived on a Sunday. "
    size = len(engine.backbone.tokens(text * 10))
    copies = [Document(f"storm-{n}", text * 10) for n in range(engine.backbone.window // size + 1)]
    engine.compile(copies, "qcfuse")
    with pytest.raises(PromptTooLongError, match=f"the model's window is {engine.backbone.window}: profile over fewer"):
        engine.profile_layers(QUESTIONS, top_k=len(copies))
    assert engine.library.ranked_layers == []
