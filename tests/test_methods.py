"""Every method over every family, and how methods are spelled."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

import writing
from conftest import Load
from conversations import CARD, DOCUMENTS, QUESTION
from kvbind import Engine, Method, Page, PageSpec, Sampling, Text, Write, parse_method
from kvbind.errors import MethodError
from kvbind.methods import factories, table
from kvbind.types import label
from tiny import FAMILIES, VISION

TEXT_METHODS = (
    *("full", "prefix-free", "dummy", "dummy:k=2", "template"),
    *("epic:k=2", "cacheblend", "cacheblend:gradual=on", "qcfuse", "qcfuse:template=on", "qcfuse-view"),
)
PAGE_METHODS = (
    *("full:dpi=72", "prefix-free:dpi=72", "dummy:k=2,dpi=120", "template:dpi=96"),
    *("epic:k=2,dpi=72", "cacheblend:dpi=72", "qcfuse:dpi=72", "qcfuse-view:dpi=72"),
    *("qv-pic", "qv-pic:template=off", "qv-pic:alpha=0.9,budget=2,low=60,high=144"),
)
TRAINED = tuple(f"{method}:adapter=" for method in writing.METHODS)
MATRIX = [(f, m) for f in FAMILIES for m in TEXT_METHODS + TRAINED] + [(f, m) for f in VISION for m in PAGE_METHODS]


@pytest.mark.parametrize(("name", "spelling"), MATRIX)
def test_every_method_runs_on_every_family(load: Load, fresh: Load, tmp_path: Path, name: str, spelling: str) -> None:
    backbone = fresh(name) if spelling in TRAINED else load(name)
    if spelling in TRAINED:
        writing.drawn_folder(backbone, spelling.partition(":")[0], tmp_path)
        spelling += str(tmp_path)
    engine = Engine(backbone, page=CARD)
    for _ in range(2):
        answer = engine.ask(QUESTION, DOCUMENTS, method=spelling, sampling=Sampling(max_tokens=2))
    method = engine.method(spelling)
    assert {source.state for source in answer.sources} == ({"hit"} if method.write else {"fresh"})
    assert {source.representation for source in answer.sources} <= set(map(label, method.representations))
    assert answer.ttft > 0
    assert (answer.tokens["reused"] > 0) == (method.write is not None)


def test_what_is_compiled_differs_between_frames(load: Load) -> None:
    engine = Engine(load("qwen3"))
    first = {}
    for spelling in ("prefix-free", "dummy:k=2", "dummy:k=4", "template"):
        engine.compile(DOCUMENTS[:1], spelling)
        method = engine.method(spelling)
        chunk = engine.library.chunks(DOCUMENTS[0], Text())[0]
        passage = engine.bank.get(engine.library.key(chunk, Text(), method.write))
        assert passage.origin == len(engine.library.frame(method.write, Text()))
        first[spelling] = passage.kv.v(1)
    for one in first:
        for other in first:
            assert torch.equal(first[one], first[other]) == (one == other)


def test_dummy_tokens_are_repetitions_of_x(load: Load) -> None:
    library = Engine(load("llama")).library
    (x,) = library.backbone.tokens("x")
    assert library.frame(Write("dummy", 3), Text()) == [x, x, x]
    assert library.frame(Write("bare"), Text()) == []


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("full", Method("full", None, (Text(),))),
        ("template:72", Method("template", Write("template"), (Page(72),))),
        ("template:dpi=72", Method("template", Write("template"), (Page(72),))),
        ("dummy:8", Method("dummy", Write("dummy", 8), (Text(),))),
        ("dummy:k=8,dpi=120", Method("dummy", Write("dummy", 8), (Page(120),))),
        ("prefix-free", Method("prefix-free", Write("bare"), (Text(),))),
    ],
)
def test_spellings(spelling: str, expected: Method) -> None:
    assert parse_method(spelling) == expected


def test_qv_pics_published_values_are_the_defaults() -> None:
    method = parse_method("qv-pic")
    assert (method.write, method.representations) == (Write("template"), (Page(72), Page(120)))
    assert method.allocate.keywords == {"alpha": 0.65, "budget": 4}
    assert method.choose([0.5, 0.1, 0.4]) == [1, 0, 1]
    assert parse_method("qv-pic:template=off").write == Write("bare")


@pytest.mark.parametrize(
    ("spelling", "message"),
    [
        ("qvpic", "unknown method 'qvpic'; known are full, prefix-free, dummy, template, qv-pic, epic"),
        ("template:depth=2", "template takes no parameter 'depth'; it takes dpi"),
        ("template:dpi=low", "template:dpi=low: expected int, like 0"),
        ("qv-pic:alpha=1.5", "alpha"),
        ("qv-pic:budget=-1", "budget"),
        ("qv-pic:template=perhaps", "expected on or off"),
        ("dummy:k=0", "at least one dummy token"),
        ("dummy:4,8", "takes no parameter '8'"),
    ],
)
def test_wrong_spellings_are_named(spelling: str, message: str) -> None:
    with pytest.raises(MethodError) as caught:
        parse_method(spelling)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_installed_packages_add_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "kvbind.methods.table:template", "kvbind.methods")
    monkeypatch.setattr(table, "entry_points", lambda group: [point] if group == "kvbind.methods" else [])
    assert list(factories())[-1] == "mine"
    assert parse_method("mine:dpi=72", PageSpec(margin_x=5)).representations == (Page(72, PageSpec(margin_x=5)),)
