"""Where stitched passages are read otherwise than the whole context."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from conftest import Load
from kvbind import Document, Engine, Sampling
from kvbind.cli import main
from kvbind.errors import MethodError, TrainingError
from kvbind.models import load_backbone
from kvbind.steps.layout import Segment
from kvbind.train.data import Example
from kvbind.train.diagnostics import PLACES, Deviations, diagnose, place_numbers, question_attention
from kvbind.train.plot import draw_deviations
from writing import CONFIGS, drawn_folder

NOTES = (
    "The lighthouse at the end of the pier was built in 1874, and its keeper was Margaret Ellis for many years.",
    "The storm arrived on a Tuesday.",
)
EXAMPLES = [Example(NOTES, "Who saw it?"), Example(NOTES[::-1], "When was it?", before="Read this. ")]
some = pytest.mark.parametrize("name", ["llama", "qwen3", "glm4v"])


def segment(rows: int) -> Segment:
    return Segment("passage", torch.zeros(rows, dtype=torch.long), torch.zeros(1, rows), 0)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (3, ["+1", "+2", "-1"]),
        (4, ["+1", "+2", "-2", "-1"]),
        (17, [*PLACES[:8], "interior", *PLACES[9:]]),
        (19, [*PLACES[:8], "interior", "interior", "interior", *PLACES[9:]]),
    ],
)
def test_places_count_from_both_ends(rows: int, expected: list[str]) -> None:
    assert [PLACES[number] for number in place_numbers(segment(rows)).tolist()] == expected


@some
@torch.no_grad()
def test_the_questions_attention_is_whole_and_causal(load: Load, name: str) -> None:
    """Its last row alone is what the loop itself reports as evidence."""
    engine = Engine(load(name))
    chat = engine.chat(method="full")
    answer = chat.ask("Who?", [Document("pier", NOTES[0])], sampling=Sampling(max_tokens=0), explain=True)
    assert chat.turn is not None
    assert chat.context is not None
    layout = chat.turn.layout
    found = question_attention(engine.backbone, chat.context, layout)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(engine.backbone.shape[0]))
    last = layout.segments[-1]
    cut = Segment("fresh", last.ids[-1:], last.positions[:, -1:], last.rows.stop - 1)
    rest = Segment("fresh", last.ids[:-1], last.positions[:, :-1], last.start)
    alone = question_attention(
        engine.backbone, chat.context, type(layout)((*layout.segments[:-1], rest, cut), layout.end)
    )
    middle = engine.backbone.shape[0] // 2
    assert float(alone[middle, layout.chunks[0].rows].sum()) == pytest.approx(answer.sources[0].attention, abs=1e-5)


@some
def test_what_is_exact_does_not_deviate(load: Load, name: str) -> None:
    engine = Engine(load(name))
    (exact,) = diagnose(engine, [Example(NOTES[:1], "Who?")], ["template"])
    assert float(exact.deviation.abs().max()) < 1e-3
    torch.testing.assert_close(exact.density, torch.ones_like(exact.density), rtol=1e-3, atol=1e-3)
    naive, template = diagnose(engine, EXAMPLES, ["prefix-free", "template"])
    for found in (naive, template):
        assert float(found.deviation[0].abs().max()) < 1e-3, "the first layer's keys know nothing of what stands before"
        assert float(found.deviation[1:].min()) > 0.01
        assert not found.soft.any()


def test_soft_rows_take_their_share(models: Callable[[str], Path], tmp_path: Path) -> None:
    engine = Engine(load_backbone(models("qwen3")))
    drawn_folder(engine.backbone, "kv-packet", tmp_path)
    (found,) = diagnose(engine, EXAMPLES, [f"kv-packet:{tmp_path}"])
    assert 0.02 < float(found.soft.min()) <= float(found.soft.max()) < 1
    assert CONFIGS["kv-packet"].header
    assert found.deviation.shape == (engine.backbone.shape[0], len(PLACES))


@pytest.mark.parametrize("spelling", ["full", "template:dpi=72", "qv-pic"])
def test_methods_that_cannot_be_compared_are_refused(load: Load, spelling: str) -> None:
    with pytest.raises(MethodError, match=f"{spelling}: only methods that reuse documents shown as text"):
        diagnose(Engine(load("glm4v")), EXAMPLES, [spelling])
    with pytest.raises(TrainingError, match="no example"):
        diagnose(Engine(load("glm4v")), [], ["template"])


def test_the_command_prints_and_draws(models: Callable[[str], Path], tmp_path: Path) -> None:
    data = tmp_path / "notes.jsonl"
    data.write_text("".join(json.dumps({"documents": e.documents, "question": e.question}) + "\n" for e in EXAMPLES))
    words = ["diagnose", "--model", str(models("llama")), "--data", str(data), "--method", "prefix-free"]
    printed = CliRunner().invoke(main, [*words, "--plot", str(tmp_path / "a.svg"), "--layers"])
    assert printed.exit_code == 0, printed.output
    assert [line.split()[:2] for line in printed.stdout.splitlines()[1:]] == [["prefix-free", str(n)] for n in range(3)]
    assert (tmp_path / "a.svg").read_text().count("<title>") == 3 * len(PLACES)
    (found,) = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    assert found["places"] == list(PLACES)
    assert len(found["deviation"]) == 3


def test_places_and_layers_together_weigh_by_attention() -> None:
    off, full, stitched = (
        torch.tensor([[1.0, 3.0], [1.0, 1.0]]),
        torch.tensor([[1.0, 9.0], [4.0, 2.0]]),
        torch.ones(2, 2),
    )
    found = Deviations("m", off, full, stitched, torch.zeros(2))
    assert found.over(slice(None), slice(0, 1)) == pytest.approx((2 / 5, 2 / 5))
    assert found.over(slice(0, 1), slice(None)) == pytest.approx((4 / 10, 2 / 10))


def test_the_map_shades_by_deviation(load: Load) -> None:
    found = diagnose(Engine(load("llama")), EXAMPLES[:1], ["prefix-free"])
    found[0].full[1:3, 0] = 1.0
    found[0].off[1, 0], found[0].off[2, 0] = 1.0, 5.0
    drawn = draw_deviations(found)
    assert 'fill-opacity="0.500"><title>1.000</title>' in drawn
    assert 'fill-opacity="1.000"><title>5.000</title>' in drawn
