"""Sampling, stop strings and streaming."""

import dataclasses

import pytest
import torch

from conftest import Load
from conversations import DOCUMENTS, QUESTION
from kvbind import Engine, Sampling
from kvbind.errors import MethodError
from kvbind.steps.decode import sample

IDS = [document.id for document in DOCUMENTS]


@pytest.fixture
def engine(load: Load) -> Engine:
    made = Engine(dataclasses.replace(load("qwen2"), stops=frozenset()))  # random models stop at random
    for document in DOCUMENTS:
        made.add(document)
    return made


def test_streamed_text_is_the_answer(engine: Engine) -> None:
    for sampling in (Sampling(max_tokens=40), Sampling(max_tokens=40, temperature=1.3, seed=3)):
        pieces: list[str] = []
        answer = engine.ask(QUESTION, IDS, sampling=sampling, on_text=pieces.append)
        assert "".join(pieces) == answer.text
        assert len(pieces) > 1


def test_a_stop_string_ends_the_answer_and_is_never_shown(engine: Engine) -> None:
    whole = engine.ask(QUESTION, IDS, sampling=Sampling(max_tokens=40)).text
    stop = whole[10:13]
    pieces: list[str] = []
    answer = engine.ask(QUESTION, IDS, sampling=Sampling(max_tokens=40, stop=(stop,)), on_text=pieces.append)
    assert answer.text == whole[: whole.index(stop)] == "".join(pieces)
    assert answer.finish == "stop"


def test_seeds_repeat_and_differ(engine: Engine) -> None:
    def text(seed: int) -> str:
        return engine.ask(QUESTION, IDS, sampling=Sampling(max_tokens=20, temperature=1.0, seed=seed)).text

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(5)}) > 1


def test_a_small_top_p_is_greedy(engine: Engine) -> None:
    greedy = engine.ask(QUESTION, IDS, sampling=Sampling(max_tokens=20))
    narrow = engine.ask(QUESTION, IDS, sampling=Sampling(max_tokens=20, temperature=2.0, top_p=1e-9, seed=1))
    assert narrow.ids == greedy.ids


def test_sampling_follows_the_distribution() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    generator = torch.Generator().manual_seed(0)
    drawn = [sample(logits, Sampling(temperature=1.0), generator) for _ in range(4000)]
    shares = torch.tensor(drawn).bincount(minlength=4) / 4000
    torch.testing.assert_close(shares, logits.exp(), rtol=0, atol=0.03)
    nucleus = [sample(logits, Sampling(temperature=1.0, top_p=0.75), generator) for _ in range(500)]
    assert set(nucleus) == {0, 1}


def test_an_answer_ends_with_the_models_window(engine: Engine) -> None:
    backbone = engine.backbone
    answer = engine.ask(QUESTION, IDS[2:], sampling=Sampling(max_tokens=100_000))
    assert answer.finish == "window"
    assert sum(answer.tokens.values()) == backbone.window + 1


def test_a_stop_string_leaves_nothing_in_the_conversation(engine: Engine) -> None:
    whole = engine.ask(QUESTION, IDS, sampling=Sampling(max_tokens=40)).text
    chat = engine.chat()
    answer = chat.ask(QUESTION, IDS, sampling=Sampling(max_tokens=40, stop=(whole[10:16],)))
    rows = chat.turn.layout.rows
    assert chat.context.size + len(chat.pending) == rows + len(answer.ids)
    assert chat.context.position - chat.turn.layout.end == chat.context.size - rows
    assert answer.text.startswith(engine.backbone.tokenizer.decode(answer.ids))
    pending = list(chat.pending)
    chat.ask("Why?", sampling=Sampling(max_tokens=1))
    assert chat.turn.layout.ids[: len(pending)].tolist() == pending
    assert chat.turn.layout.segments[0].start == rows + len(answer.ids) - len(pending)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": -1.0}, "temperature=-1.0: give 0"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"temperature": 1e-40}, "temperature"),
        ({"top_p": 0.0}, "top_p=0.0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"max_tokens": -1}, "max_tokens=-1"),
        ({"stop": "storm"}, "stop='storm': give a tuple"),
        ({"stop": ("",)}, "none of them empty"),
    ],
)
def test_sampling_that_makes_no_sense(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(MethodError) as caught:
        Sampling(**wrong)
    assert message in str(caught.value)
