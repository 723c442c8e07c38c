"""Writers that learn: what they are taught, what they are given to match, and runs that stop and go on."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import kl_div
from torch.utils.checkpoint import CheckpointError

from conftest import Load
from conversations import library
from kvbind import Document, Engine, Sampling
from kvbind.cli import main
from kvbind.errors import TrainingError
from kvbind.models import Backbone, load_backbone
from kvbind.scores import longbench_f1, micro_counts, micro_f1
from kvbind.steps.read import read
from kvbind.train import checkpointing, loop, run, teacher
from kvbind.train.checkpointing import read_checkpointed
from kvbind.train.data import DataSet, Example, read_data
from kvbind.train.evaluate import Trial, answers, scores
from kvbind.train.loop import Options, distance, train
from kvbind.train.loss import compress, divergence
from kvbind.train.plot import draw
from kvbind.train.settings import Settings
from kvbind.train.student import Student, make_prompt
from kvbind.train.teacher import Lesson, Teaching, make_lesson, teach
from kvbind.writers import TrainedWriter, WriterConfig, read_writer
from writing import CONFIGS, METHODS, drawn_folder, drawn_writer

some = pytest.mark.parametrize("name", ["llama", "qwen3", "glm4v"])
methods = pytest.mark.parametrize("method", METHODS)
NOTES = (
    "Ada kept a boat called Wren.",
    "Bo kept a boat called Heron, and two dogs.",
    "Cy lived by the pump.",
    "Di built the pier in 1874.",
)
EXAMPLES = tuple(
    Example(pair, f"What did {pair[0][:2]} do?", place=f"notes.jsonl:{number}")
    for number, pair in enumerate(permutations(NOTES, 2), 1)
)
BRIEF = Teaching(max_tokens=4)
DATA = [DataSet("notes", EXAMPLES[:6], EXAMPLES[6:7])]
QUICK = Settings("joint", epochs=2, batch=4, group=2, rank=2, soft=2, lr=1e-3, teaching=BRIEF)


@pytest.fixture
def fresh(models: Callable[[str], Path]) -> Load:
    """Models that no other test sees: adapters stay on a model once they are there."""
    return lambda name: load_backbone(models(name))


def lessons_of(backbone: Backbone, count: int = 2) -> list[tuple[Example, Lesson]]:
    lib = library(backbone)
    return [(example, make_lesson(lib, example, BRIEF)) for example in EXAMPLES[:count]]


def trained(backbone: Backbone, folder: Path, settings: Settings = QUICK, **more: Any) -> TrainedWriter:
    options = more.pop("options", Options(folder / "teacher", evaluations=0, save_every=0.0))
    return train(library(backbone), DATA, folder, settings, options, **more)


# The loss


def test_the_loss_is_kl_at_every_place() -> None:
    generator = torch.Generator().manual_seed(0)
    teaching, student = (2 * torch.randn(5, 40, generator=generator) for _ in range(2))
    expected = kl_div(student.log_softmax(-1), teaching.log_softmax(-1), reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(divergence(student, *compress(teaching, 40)), expected)
    torch.testing.assert_close(divergence(student, *compress(teaching, 99)), expected)
    torch.testing.assert_close(divergence(teaching, *compress(teaching, 7)), torch.zeros(5), atol=1e-6, rtol=0)


def test_what_is_not_among_the_likeliest_counts_as_one() -> None:
    generator = torch.Generator().manual_seed(1)
    teaching, student = (2 * torch.randn(3, 40, generator=generator) for _ in range(2))
    p, q = teaching.softmax(-1), student.softmax(-1)
    for place in range(3):
        order = p[place].argsort(descending=True)
        buckets = [torch.cat((x[place][order[:6]], x[place][order[6:]].sum()[None])) for x in (p, q)]
        expected = (buckets[0] * (buckets[0] / buckets[1]).log()).sum()
        torch.testing.assert_close(divergence(student, *compress(teaching, 6))[place], expected)
    assert (divergence(student, *compress(teaching, 6)) < divergence(student, *compress(teaching, 40))).all()


def test_a_certain_teacher_gives_finite_gradients() -> None:
    teaching = torch.full((1, 9), -torch.inf)
    teaching[0, 3] = 0.0
    student = torch.zeros(1, 9, requires_grad=True)
    loss = divergence(student, *compress(teaching, 1)).sum()
    loss.backward()
    torch.testing.assert_close(loss.detach(), torch.tensor(9.0).log())
    assert student.grad is not None
    assert student.grad.isfinite().all()


# The teacher


@some
@torch.no_grad()
def test_lessons_are_the_models_own_greedy_answers(fresh: Load, name: str) -> None:
    """An independent reference: one native forward over prompt and answer."""
    backbone = fresh(name)
    engine = Engine(backbone)
    for example in EXAMPLES[:3]:
        lesson = make_lesson(engine.library, example, Teaching(max_tokens=6, top=10_000))
        documents = [Document(str(number), text) for number, text in enumerate(example.documents)]
        asked = engine.ask(example.question, documents, method="full", sampling=Sampling(max_tokens=6))
        assert tuple(lesson.ids.tolist()) == asked.ids
        assert lesson.places == len(asked.ids) + (asked.finish == "stop")
        prompt = make_prompt(backbone, example)
        layout = prompt.lay_out(backbone, prompt.documents)
        ids = torch.cat((layout.ids, lesson.ids))[None]
        positions = torch.arange(ids.shape[1]).expand(backbone.family.axes, 1, -1)
        logits = backbone.model(
            input_ids=ids, position_ids=positions if backbone.family.axes > 1 else positions[0], use_cache=False
        ).logits[0, layout.rows - 1 :][: lesson.places]
        expected = logits.log_softmax(-1).gather(-1, lesson.top)
        torch.testing.assert_close(lesson.logs, expected, rtol=1e-4, atol=1e-4)


def test_given_answers_are_taught_where_that_is_asked_for(load: Load) -> None:
    lib = library(load("llama"))
    example = replace(EXAMPLES[0], answers=("She kept a boat.", "A boat."))
    lesson = make_lesson(lib, example, replace(BRIEF, max_tokens=64, given=True))
    assert lesson.ids.tolist() == lib.backbone.tokens("She kept a boat.")
    assert lesson.places == len(lesson.ids) + 1, "the end of the answer is learned too"
    own = make_lesson(lib, EXAMPLES[0], BRIEF)
    assert torch.equal(make_lesson(lib, EXAMPLES[0], replace(BRIEF, given=True)).ids, own.ids)


def test_lessons_are_made_once(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib, made = library(load("llama")), []

    def counted(*arguments: Any) -> Lesson:
        made.append(arguments[1])
        return make_lesson(*arguments)

    monkeypatch.setattr(teacher, "make_lesson", counted)
    first = teach(lib, EXAMPLES[:3], BRIEF, tmp_path)
    assert made == list(EXAMPLES[:3])
    again = teach(library(load("llama")), EXAMPLES[2::-1], BRIEF, tmp_path)
    assert len(made) == 3
    for one, other in zip(first, reversed(again), strict=True):
        for part in ("ids", "top", "logs", "rest"):
            assert torch.equal(getattr(one, part), getattr(other, part))
        assert (one.text, one.end) == (other.text, other.end)
    teach(lib, EXAMPLES[:1], replace(BRIEF, top=5), tmp_path)
    teach(library(load("qwen3")), EXAMPLES[:1], BRIEF, tmp_path)
    assert len(made) == 5, "other options and another model are other lessons"


def test_an_interrupted_teacher_keeps_what_it_made(load: Load, tmp_path: Path) -> None:
    lib, asked = library(load("llama")), iter([False, False, True])
    with pytest.raises(KeyboardInterrupt):
        teach(lib, EXAMPLES[:4], BRIEF, tmp_path, stop=lambda: next(asked))
    told: list[tuple[int, int]] = []
    teach(lib, EXAMPLES[:4], BRIEF, tmp_path, tell=lambda done, total: told.append((done, total)))
    assert told == [(2, 4), (3, 4)]


def test_a_damaged_shard_is_named(load: Load, tmp_path: Path) -> None:
    lib = library(load("llama"))
    teach(lib, EXAMPLES[:1], BRIEF, tmp_path)
    (shard,) = tmp_path.iterdir()
    shard.write_bytes(shard.read_bytes()[:-40])
    with pytest.raises(TrainingError, match=f"{shard.name} is damaged: delete it"):
        teach(lib, EXAMPLES[:1], BRIEF, tmp_path)


def test_a_prompt_longer_than_the_window_is_named(load: Load, tmp_path: Path) -> None:
    long = replace(EXAMPLES[0], documents=("The keeper trimmed the lamp. " * 400,))
    with pytest.raises(TrainingError, match=r"notes.jsonl:1: the prompt takes [\d]+ positions, the model's window is"):
        teach(library(load("llama")), [long], BRIEF, tmp_path)


# The student


@some
@methods
def test_the_student_is_what_serves(fresh: Load, tmp_path: Path, name: str, method: str) -> None:
    """The logits that are trained and the answers that are scored are those of the engine over the writer's folder."""
    backbone = fresh(name)
    writer = drawn_writer(backbone, method)
    student = Student(library(backbone), CONFIGS[method], writer)
    example, lesson = lessons_of(backbone, 1)[0]
    prompt = make_prompt(backbone, example)
    (passages,) = student.compile([prompt])
    logits = student.logits(prompt, passages, lesson.ids[: lesson.places - 1], lesson.places)
    drawn_folder(backbone, method, tmp_path)
    documents = [Document(str(number), text) for number, text in enumerate(example.documents)]
    chat = Engine(fresh(name)).chat(method=f"{method}:{tmp_path}")
    served = chat.ask(example.question, documents, sampling=Sampling(max_tokens=4))
    assert chat.turn is not None
    torch.testing.assert_close(logits[0].detach(), chat.turn.logits, rtol=1e-4, atol=2e-4)
    assert answers(student, [Trial("notes", example, lesson)], 4) == [served.text]


@some
@torch.no_grad()
def test_a_single_document_compiled_after_the_head_is_at_no_distance(fresh: Load, name: str) -> None:
    """Where stitching equals full prefill, student and teacher agree at every place of the answer."""
    backbone = fresh(name)
    lib, example = library(backbone), Example(NOTES[:1], "What did Ada keep?")
    lesson = make_lesson(lib, example, Teaching(max_tokens=6))
    assert lesson.places > 2
    student = Student(lib, WriterConfig("writer", "template"))
    assert abs(float(distance(student, [(example, lesson)]))) < 1e-3
    alone = Student(lib, WriterConfig("writer", "bare"))
    assert float(distance(alone, [(example, lesson)])) > 0.05


@some
@methods
def test_gradients_reach_every_weight_of_a_writer(fresh: Load, name: str, method: str) -> None:
    """Law 10 for writers, by finite differences: the adapter is off when the loss is taken."""
    backbone = fresh(name)
    writer = drawn_writer(backbone, method)
    parameters = writer.parameters()
    student, batch = Student(library(backbone), CONFIGS[method], writer), lessons_of(backbone)
    distance(student, batch).backward()
    assert backbone.adapters.active == ""
    generator = torch.Generator().manual_seed(2)
    # Queries and outputs of the last layer lead to no key or value.
    last = f"layers.{backbone.shape[0] - 1}.self_attn."
    idle = {n for n in writer.tensors() if f"{last}q_proj" in n or f"{last}o_proj" in n}
    reached = [parameter for parameter in parameters if parameter.grad is not None and parameter.grad.abs().max() > 0]
    assert len(reached) == len(parameters) - len(idle)
    for parameter in (reached[0], reached[-1]):
        assert parameter.grad is not None
        direction = torch.randn(parameter.shape, generator=generator)
        slope = float((parameter.grad * direction).sum())
        with torch.no_grad():
            values = [
                _moved(parameter, step * direction, lambda: float(distance(student, batch))) for step in (1e-3, -1e-3)
            ]
        assert slope == pytest.approx((values[0] - values[1]) / 2e-3, rel=0.05, abs=0.02)


def _moved(parameter: Tensor, step: Tensor, measure: Callable[[], float]) -> float:
    parameter += step
    value = measure()
    parameter -= step
    return value


# KV gradient checkpointing


def gradients(backbone: Backbone, method: str, forward: Any) -> list[Tensor]:
    writer = drawn_writer(backbone, method)
    parameters = writer.parameters()
    distance(Student(library(backbone), CONFIGS[method], writer, forward), lessons_of(backbone)).backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]


@some
@methods
def test_checkpointed_gradients_are_the_plain_ones(fresh: Load, name: str, method: str) -> None:
    backbone = fresh(name)
    plain, checkpointed = (gradients(backbone, method, forward) for forward in (read, read_checkpointed))
    for one, other in zip(plain, checkpointed, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_recomputation_runs_with_the_adapter_on(fresh: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap: in the backward pass the adapter is off, unless it is switched on for each layer."""
    backbone = fresh("llama")
    honest, seen = backbone.adapters.on, []

    def watched(name: str) -> Any:
        seen.append(name)
        return honest(name)

    monkeypatch.setattr(backbone.adapters, "on", watched)
    gradients(backbone, "sempic", read_checkpointed)
    assert seen.count("drawn0") == 1 + backbone.shape[0], "once to write, and once for each layer"
    whole = checkpointing.checkpoint

    def forgetful(*arguments: Any, **options: Any) -> Any:
        return whole(*arguments, **{**options, "context_fn": lambda: (nullcontext(), nullcontext())})

    monkeypatch.setattr(checkpointing, "checkpoint", forgetful)
    with pytest.raises(CheckpointError):
        gradients(backbone, "sempic", read_checkpointed)


def test_checkpointing_keeps_less_for_the_backward_pass(fresh: Load) -> None:
    backbone = fresh("llama")
    sizes = [_kept(backbone, forward) for forward in (read, read_checkpointed)]
    assert sizes[1] < 0.5 * sizes[0]


def _kept(backbone: Backbone, forward: Any) -> int:
    writer = drawn_writer(backbone, "sempic")
    writer.parameters()
    student = Student(library(backbone), CONFIGS["sempic"], writer, forward)
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        student.compile([make_prompt(backbone, EXAMPLES[0])])
    return sum(seen.values())


# Runs


@methods
def test_a_writer_learns(fresh: Load, tmp_path: Path, method: str) -> None:
    kind = CONFIGS[method].kind
    settings = replace(QUICK, kind=kind, epochs=12, lr=1e-2)
    writer = trained(fresh("qwen3"), tmp_path, settings)
    assert writer.training["loss"]["last"] < 0.6 * writer.training["loss"]["first"]
    assert (writer.training["steps"], writer.config.kind) == (24, kind)
    answer = Engine(fresh("qwen3")).ask("Who?", [Document("a", NOTES[0])], method=f"{method}:{tmp_path}")
    assert answer.method == method


def test_a_writer_learns_on_a_bfloat16_model(models: Callable[[str], Path], tmp_path: Path) -> None:
    backbone = load_backbone(models("qwen3"), dtype="bfloat16")
    writer = trained(backbone, tmp_path, replace(QUICK, epochs=12, lr=1e-2, checkpointing=True))
    assert writer.training["loss"]["last"] < 0.7 * writer.training["loss"]["first"]
    assert {tensor.dtype for tensor in writer.tensors().values()} == {torch.float32}
    answer = Engine(backbone).ask("Who?", [Document("a", NOTES[0])], method=f"joint:{tmp_path}")
    assert answer.method == "joint"


def test_a_teacher_that_gives_no_numbers_is_named(fresh: Load, tmp_path: Path) -> None:
    backbone = fresh("llama")
    backbone.model.lm_head.weight.data[0, 0] = torch.nan
    with pytest.raises(TrainingError, match=r"notes.jsonl:1: the model's own answer is not made of numbers"):
        teach(library(backbone), EXAMPLES[:1], BRIEF, tmp_path)


def test_a_killed_run_goes_on_to_the_same_weights(fresh: Load, tmp_path: Path) -> None:
    whole = trained(fresh("llama"), tmp_path / "whole")

    def killed(what: str, done: int, *_: Any) -> None:
        if (what, done) == ("training", 3):
            raise SystemExit

    with pytest.raises(SystemExit):
        trained(fresh("llama"), tmp_path / "parts", tell=killed)
    assert read_writer(tmp_path / "parts").training["steps"] == 2, "killed after a step, before its checkpoint"
    told: list[tuple[str, int]] = []
    parts = trained(fresh("llama"), tmp_path / "parts", tell=lambda what, done, *_: told.append((what, done)))
    assert parts.digest == whole.digest
    assert [done for what, done in told if what == "training"] == [3, 4]
    logs = [
        [json.loads(line) for line in (tmp_path / f / "log.jsonl").read_text().splitlines()] for f in ("whole", "parts")
    ]
    assert logs[0] == logs[1]
    again = trained(fresh("llama"), tmp_path / "parts", tell=lambda what, *_: pytest.fail(what))
    assert again.digest == whole.digest


def test_other_seeds_are_other_writers(fresh: Load, tmp_path: Path) -> None:
    runs = [trained(fresh("llama"), tmp_path / str(seed), replace(QUICK, seed=seed)) for seed in (0, 1)]
    assert runs[0].digest != runs[1].digest


def test_groups_and_checkpointing_change_nothing_but_rounding(fresh: Load, tmp_path: Path) -> None:
    runs = [
        trained(fresh("llama"), tmp_path / str(number), settings).tensors()
        for number, settings in enumerate((QUICK, replace(QUICK, group=4), replace(QUICK, checkpointing=True)))
    ]
    for other in runs[1:]:
        for name, tensor in runs[0].items():
            torch.testing.assert_close(tensor, other[name], rtol=1e-3, atol=2e-5)


def test_a_loss_that_is_no_number_stops_training(fresh: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def spoilt(*arguments: Any) -> Tensor:
        steps.append(1)
        return distance(*arguments) * (torch.nan if len(steps) > 4 else 1.0)

    monkeypatch.setattr(loop, "distance", spoilt)
    with pytest.raises(TrainingError) as caught:
        trained(fresh("llama"), tmp_path)
    assert str(caught.value).startswith("the loss is not a number at step 3: training stopped")
    assert f"{tmp_path} keeps the writer of 2 steps. Train with a lower lr" in str(caught.value)
    kept = read_writer(tmp_path)
    assert kept.training["steps"] == 2
    assert all(tensor.isfinite().all() for tensor in kept.tensors().values())


def test_a_weight_that_is_no_number_is_not_kept(fresh: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(run: Any) -> tuple[float, float, float]:
        with torch.no_grad():
            run.parameters[0][0, 0] = torch.inf
        return 0.1, 0.1, 0.1

    monkeypatch.setattr(loop, "one_step", spoilt)
    with pytest.raises(TrainingError, match="a weight is not a number"):
        trained(fresh("llama"), tmp_path)
    assert read_writer(tmp_path).training["steps"] == 0


@pytest.mark.parametrize(
    ("change", "word"),
    [({"lr": 5e-3}, "lr"), ({"seed": 4}, "seed"), ({"teaching": Teaching(max_tokens=5)}, "max_tokens")],
)
def test_a_folder_of_another_run_is_refused(fresh: Load, tmp_path: Path, change: dict[str, Any], word: str) -> None:
    trained(fresh("llama"), tmp_path, replace(QUICK, epochs=1))
    with pytest.raises(TrainingError, match=rf"holds a run with another {word} \(.* there, .* here\): "):
        trained(fresh("llama"), tmp_path, replace(QUICK, epochs=1, **change))
    with pytest.raises(TrainingError, match="another model"):
        trained(fresh("qwen3"), tmp_path, replace(QUICK, epochs=1))


@pytest.mark.parametrize("name", [run.CHECKPOINT, run.RUN])
def test_damaged_runs_are_named(fresh: Load, tmp_path: Path, name: str) -> None:
    trained(fresh("llama"), tmp_path, replace(QUICK, epochs=1))
    (tmp_path / name).write_bytes(b"{")
    with pytest.raises(TrainingError, match=f"{name} is damaged"):
        trained(fresh("llama"), tmp_path, replace(QUICK, epochs=1))


def test_a_finished_writer_is_not_written_over(fresh: Load, tmp_path: Path) -> None:
    first = trained(fresh("llama"), tmp_path / "run", replace(QUICK, epochs=1))
    (tmp_path / "copy").mkdir()
    for name in ("adapter.safetensors", "writer.json"):
        shutil.copy(tmp_path / "run" / name, tmp_path / "copy" / name)
    with pytest.raises(TrainingError, match="copy holds a trained writer, and no run to go on with"):
        trained(fresh("llama"), tmp_path / "copy", replace(QUICK, epochs=1))
    assert read_writer(tmp_path / "copy").digest == first.digest


def test_without_its_checkpoint_a_run_begins_anew(fresh: Load, tmp_path: Path) -> None:
    first = trained(fresh("llama"), tmp_path, replace(QUICK, epochs=1))
    (tmp_path / run.CHECKPOINT).unlink()
    again = trained(fresh("llama"), tmp_path, replace(QUICK, epochs=1))
    assert again.digest == first.digest
    steps = [json.loads(line)["step"] for line in (tmp_path / run.LOG).read_text().splitlines()]
    assert steps == [0, 1, 2, 2], "two steps between two evaluations"


def test_soft_rows_that_do_not_fit_are_named(fresh: Load, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"notes.jsonl:1: prompt, soft rows and answer take"):
        trained(fresh("llama"), tmp_path, replace(QUICK, soft=600))


def test_evaluations_stand_beside_naive_stitching_and_full_prefill(fresh: Load, tmp_path: Path) -> None:
    right = replace(EXAMPLES[6], answers=("a boat",))
    data = [DataSet("notes", EXAMPLES[:4], (EXAMPLES[6],)), DataSet("boats", EXAMPLES[7:8], (right,))]
    options = Options(tmp_path / "teacher", evaluations=1)
    writer = train(library(fresh("llama")), data, tmp_path, QUICK, options)
    found = writer.training["evaluations"]
    assert [record["step"] for record in found] == [0, 2, 4]
    assert found[0]["full"]["by_data_set"]["notes"] == {"f1": 100.0, "micro_f1": 100.0}, "it is its own measure there"
    assert found[0]["full"]["f1"] == pytest.approx((100.0 + found[0]["full"]["by_data_set"]["boats"]["f1"]) / 2)
    assert all("naive" in record for record in found[:1])
    curves = (tmp_path / "loss.svg").read_text()
    assert curves.startswith("<svg")
    assert curves.count("<polyline") == 7


def test_the_plot_has_a_point_for_each_step() -> None:
    curves = draw([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}], 4, "run")
    assert '<polyline points="196.0,34.0 336.0,124.0"' in curves


def test_scores_are_means_over_data_sets() -> None:
    lesson = Lesson(*(torch.zeros(0) for _ in range(4)), "the wren", 0)
    trials = [Trial("a", EXAMPLES[0], lesson), Trial("a", EXAMPLES[1], lesson), Trial("b", EXAMPLES[2], lesson)]
    found = scores(trials, ["Wren!", "heron", "wren"])
    assert found["f1"] == 75.0
    assert found["by_data_set"]["a"]["f1"] == 50.0
    assert found["micro_f1"] == pytest.approx(100 * 2 * 1 / (3 + 6), abs=0.01)


@pytest.mark.parametrize(
    ("prediction", "answers", "longbench", "micro"),
    [
        ("The storm, on Tuesday!", ("Storm on a Tuesday",), 1.0, 2 * 1 / 8),
        ("Ruth Bell", ("Ruth", "Ruth Bell Ford"), 0.8, 2 / 3),
        ("Oslo.", ("oslo",), 1.0, 1.0),
        ("", ("Oslo",), 0.0, 0.0),
        ("a the", ("an",), 0.0, 0.0),
    ],
)
def test_two_f1s(prediction: str, answers: tuple[str, ...], longbench: float, micro: float) -> None:
    assert longbench_f1(prediction, answers) == pytest.approx(longbench)
    assert micro_f1([micro_counts(prediction, answers[0])]) == pytest.approx(micro)


def test_micro_f1_sums_before_it_divides() -> None:
    counts = [micro_counts("Ruth", "Ruth Bell"), micro_counts("it is Oslo", "Oslo")]
    assert micro_f1(counts) == pytest.approx(4 / 7)


# Data

LINE = {"documents": ["One.", {"title": "Two", "text": "Second."}], "question": "Which?", "answer": "one"}


def written(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_data_is_read(tmp_path: Path) -> None:
    more = [{**LINE, "question": f"Which of {number}?", "answer": ["a", "b"]} for number in range(30)]
    file = written(tmp_path / "a.jsonl", {**LINE, "before": "Read."}, "", {**LINE, "answer": None}, *more)
    (data,) = read_data([file], held_out=2)
    assert (data.name, len(data.training), len(data.held_out)) == ("a", 30, 2)
    everything = {example.question: example for example in (*data.training, *data.held_out)}
    assert everything["Which of 3?"].documents == ("One.", "Two\nSecond.")
    assert everything["Which of 3?"].answers == ("a", "b")
    assert everything["Which of 3?"].place == f"{file}:7"
    assert not {e.digest for e in data.training} & {e.digest for e in data.held_out}


def test_folders_hold_one_data_set_a_file(tmp_path: Path) -> None:
    lines = [{**LINE, "question": f"{number}?"} for number in range(20)]
    written(tmp_path / "a.jsonl", *lines)
    (tmp_path / "more").mkdir()
    others = [{**line, "question": f"And {line['question']}"} for line in lines]
    written(tmp_path / "more" / "b.ndjson", *others, *others)
    written(tmp_path / ".hidden.jsonl", "no JSON")
    sets = read_data([tmp_path], held_out=9, samples=10, seed=3)
    assert [(s.name, len(s.training) + len(s.held_out)) for s in sets] == [("a", 10), ("b", 10)]
    assert read_data([tmp_path], held_out=9, samples=10, seed=3) == sets
    assert read_data([tmp_path], held_out=9, samples=10, seed=4) != sets
    whole = read_data([tmp_path], held_out=9)[1]
    assert not {e.prompt for e in whole.training} & {e.prompt for e in whole.held_out}, "twins are on one side"


def test_what_is_held_out_is_trained_on_under_no_name(tmp_path: Path) -> None:
    """The same prompt with other answers, or in another file."""
    lines = [{**LINE, "question": f"{number}?"} for number in range(40)]
    written(tmp_path / "a.jsonl", *lines, *({**line, "answer": ["one", "1"]} for line in lines))
    written(tmp_path / "b.jsonl", *({**line, "question": f"b {line['question']}"} for line in lines), *lines)
    sets = read_data([tmp_path])
    apart = {example.prompt for part in sets for example in part.held_out}
    assert [len(part.held_out) for part in sets] == [4, 8]
    assert not apart & {example.prompt for part in sets for example in part.training}
    assert len({example.prompt for part in sets for example in part.training} | apart) == 80


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"documents": ["One."], "question": "Which?"', "broken JSON"),
        ("[1]", "not a JSON object"),
        ({"question": "Which?"}, '"documents" is not a list of at least one document'),
        ({"documents": [], "question": "Which?"}, '"documents" is not a list of at least one document'),
        ({"documents": "One.", "question": "Which?"}, '"documents" is not a list of at least one document'),
        ({**LINE, "documents": ["One.", ""]}, '"documents" holds "" where text should be'),
        ({**LINE, "documents": [{"body": "One."}]}, '"documents" holds null where text should be'),
        ({**LINE, "question": 5}, '"question" holds 5 where text should be'),
        ({**LINE, "question": " "}, '"question" holds " " where text should be'),
        ({**LINE, "answer": 1874}, '"answer" is neither a string nor a list of strings'),
        ({**LINE, "answer": ["a", 3]}, '"answer" holds 3 where text should be'),
        ({**LINE, "before": ["x"]}, '"before" holds ["x"] where text should be'),
        ({**LINE, "question": "\ud800?"}, "half a character"),
    ],
)
def test_a_broken_line_is_named_by_number(tmp_path: Path, line: Any, words: str) -> None:
    file = written(tmp_path / "a.jsonl", LINE, "", line, LINE)
    with pytest.raises(TrainingError) as caught:
        read_data([file])
    assert str(caught.value).startswith(f"{file}:3: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_and_empty_data_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, words in (
        (tmp_path / "none", "not found"),
        (tmp_path / "folder", "no data found"),
        (written(tmp_path / "a.jsonl"), "empty"),
    ):
        with pytest.raises(TrainingError, match=words):
            read_data([path])
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes(b'{"documents": ["caf\xe9"], "question": "?"}\n')
    with pytest.raises(TrainingError, match=r"latin.jsonl:1: not UTF-8"):
        read_data([latin])


# The command


def command(model: Path, data: Path, out: Path, *more: object) -> Result:
    sizes = ("--epochs", 1, "--batch", 4, "--rank", 2, "--max-tokens", 4, "--evaluations", 0, "--held-out", 1)
    arguments = ["train", "writer", "--model", model, "--data", data, "--out", out, *sizes, *more]
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    lines = [{"documents": e.documents, "question": e.question, "answer": "a boat"} for e in EXAMPLES]
    return written(tmp_path / "notes.jsonl", *lines)


def test_the_command_trains_what_ask_serves(models: Callable[[str], Path], notes: Path, tmp_path: Path) -> None:
    result = command(models("llama"), notes, tmp_path / "out")
    assert result.exit_code == 0, result.output
    head, *table, last = result.stdout.splitlines()
    assert head.startswith("writer: 11 examples, 3 steps in ")
    rows = ["held out", "full prefill", "naive stitching", "before training", "after training"]
    assert [line[:17].strip() for line in table] == rows
    assert last == f"use it with --method sempic:adapter={tmp_path / 'out'}"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "ada.txt").write_text(NOTES[0])
    base = ("--bank", tmp_path / "bank")
    spelling = os.path.relpath(tmp_path / "out")
    for words in (
        ("compile", tmp_path / "docs", *base, "--model", models("llama"), "--method", f"sempic:{spelling}"),
        ("ask", "Who?", *base, "--max-tokens", 2, "--json"),
    ):
        result = CliRunner().invoke(main, [str(word) for word in words])
        assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["method"], [s["state"] for s in answer["sources"]]) == ("sempic", ["hit"])
    listed = CliRunner().invoke(main, ["bank", "ls", "--bank", str(tmp_path / "bank"), "--json"])
    assert listed.exit_code == 0, listed.output


@pytest.mark.parametrize("received", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_goes_on(
    models: Callable[[str], Path], notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: int
) -> None:
    whole = command(models("llama"), notes, tmp_path / "whole")
    assert whole.exit_code == 0
    honest = loop.one_step

    def interrupted(run: Any) -> tuple[float, float, float]:
        os.kill(os.getpid(), received)
        return honest(run)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "one_step", interrupted)
        stopped = command(models("llama"), notes, tmp_path / "out")
    assert stopped.exit_code == 130
    first, last = stopped.stderr.splitlines()
    assert first == "stopping after this step (Ctrl-C again: at once)"
    assert last == "interrupted at training 1/3: what is done is kept; run the same command again to go on"
    assert command(models("llama"), notes, tmp_path / "out").exit_code == 0
    assert read_writer(tmp_path / "out").digest == read_writer(tmp_path / "whole").digest


def test_broken_data_is_named_before_the_model_is_loaded(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", LINE, "{")
    result = command(tmp_path / "no-model", file, tmp_path / "out")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {file}:2: broken JSON")
    assert not (tmp_path / "out").exists()
