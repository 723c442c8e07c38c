"""Reports of runs written by hand: every number against one computed here, and figures that load nothing."""

import csv
import json
import math
import re
import sys
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvbind.bench.cold import IN_MEMORY
from kvbind.bench.figures import families, figures, tables_of
from kvbind.bench.groups import Group, comparable, gather
from kvbind.bench.panels import Figure
from kvbind.bench.records import CONFIG, COSTS, RECORDS, Record
from kvbind.bench.report import write_report
from kvbind.bench.statistics import FEWEST, Interval, bootstrap, micro_f1
from kvbind.bench.tables import Row, rows
from kvbind.errors import BenchError
from kvbind.methods import given
from kvbind.scores import micro_f1 as scalar_micro_f1

SVG = "http://www.w3.org/2000/svg"
FULL = {"name": "full", "write": None}
TEMPLATE = {"name": "template", "write": "template"}
BARE = {"name": "prefix-free", "write": "bare"}
EPIC = {"name": "epic", "write": "bare", "repairs": True}
TEXT: Mapping[str, Record] = {"full": FULL | {"shown": ["text"]}, "template": TEMPLATE | {"shown": ["text"]}}
PAGES: Mapping[str, Record] = {
    "full:dpi=72": FULL | {"shown": ["page@72"]},
    "prefix-free:dpi=72": BARE | {"shown": ["page@72"]},
    "template:dpi=120": TEMPLATE | {"shown": ["page@120"]},
    "template:dpi=72": TEMPLATE | {"shown": ["page@72"]},
    "qv-pic": {"name": "qv-pic", "write": "template", "shown": ["page@72", "page@120"]},
    "qv-pic:template=off": {"name": "qv-pic", "write": "bare", "shown": ["page@72", "page@120"]},
}


def write_run(
    folder: Path,
    methods: Mapping[str, Record],
    records: Sequence[Record],
    costs: Sequence[Record] = (),
    **changes: Any,
) -> Path:
    task = {"chat": True, "max_tokens": 8, "micro": "whole", "chunking": "notes", "source": "here", "digest": ""}
    examples = {(record["task"], record["example"]) for record in records}
    config = {
        "format": 1,
        "model": "tiny/model",
        "facts": "f",
        "dtype": "float32",
        "device": "cpu, a processor",
        "threads": 1,
        "versions": {"kvbind": "0", "torch": "0", "transformers": "0"},
        "embedder": "lexical",
        "bank": "folder",
        "page": {"dpi": 72, "width": 595},
        "methods": [
            {"spelling": s, "pages": "page" in m["shown"][0], "given": given(s)[1], "repairs": False, **m}
            for s, m in methods.items()
        ],
        "tasks": [
            {"name": name, "examples": len([1 for t, _ in examples if t == name]), **task}
            for name in dict.fromkeys(record["task"] for record in records)
        ],
        "n": None,
        "seed": 0,
        "repeats": 2,
    }
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps({**config, **changes}))
    for name, content in {RECORDS: records, COSTS: costs}.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in content))
    return folder


def record(task: str, example: str, method: str, f1: float = 0.5, **more: Any) -> Record:
    found = {
        "task": task,
        "example": example,
        "method": method,
        "documents": ["d0", "d1"],
        "gold": [],
        "facts": {},
        "finish": "stop",
        "f1": f1,
        "exact": 0.0,
        "micro": [1, 1, 1],
        "ttft": {"cold": None, "warm": [1.0, 1.0]},
        "cold": None,
        "warm": "the bank's hot tier",
    }
    return {**found, **more}


def cost(
    document: str, shown: str = "text", seconds: float | None = 1.0, size: int | None = 100, write: str = "template"
) -> Record:
    return {"document": document, "write": write, "shown": shown, "seconds": seconds, "bytes": size, "rows": 1}


def timed(seconds: float, cold: float | None = None) -> Record:
    return {"ttft": {"cold": cold, "warm": [0.5 * seconds, 1.5 * seconds]}}


def group_of(*folders: Path) -> Group:
    (group,) = gather(folders)
    return group


def row(group: Group, method: str, *tasks: str) -> Row:
    return next(found for found in rows(group, tasks or list(group.tasks)) if found.method == method)


def bounds(interval: Interval | None) -> tuple[float, float, float]:
    assert interval is not None
    return interval.value, interval.low, interval.high


# Statistics


def test_an_interval_is_the_normal_one_where_there_are_many_examples() -> None:
    values = np.random.default_rng(1).normal(3, 2, size=(400, 1))
    value, low, high = bounds(bootstrap([values]))
    error = 1.96 * values.std() / 20
    assert value == pytest.approx(values.mean())
    assert (low, high) == pytest.approx((value - error, value + error), abs=0.06 * error)
    assert bootstrap([values]) == bootstrap([values])


def test_a_constant_has_an_interval_without_width() -> None:
    assert bounds(bootstrap([np.full((20, 1), 0.1)])) == pytest.approx((0.1, 0.1, 0.1), abs=1e-12)


def test_tasks_weigh_alike_however_many_examples_they_have() -> None:
    assert bounds(bootstrap([np.zeros((2, 1)), np.ones((98, 1))])) == pytest.approx((0.5, 0.5, 0.5), abs=1e-12)
    assert bootstrap([np.zeros((2, 1)), np.zeros((0, 1))]) is None
    assert bootstrap([]) is None


def test_equal_tasks_draw_apart() -> None:
    """Twice the same examples as two tasks: half the variance, which the same draws would not give."""
    values = np.arange(30.0)[:, None]
    one, two = bounds(bootstrap([values])), bounds(bootstrap([values, values]))
    assert (two[2] - two[1]) / (one[2] - one[1]) == pytest.approx(1 / math.sqrt(2), abs=0.05)


@pytest.mark.parametrize("counts", [[(2, 0, 1), (0, 3, 2)], [(0, 4, 4)], [(0, 0, 0)]])
def test_micro_f1_is_the_scores_own(counts: list[tuple[int, int, int]]) -> None:
    assert micro_f1(np.array(counts, dtype=float).mean(0)) == pytest.approx(scalar_micro_f1(counts))


@pytest.mark.parametrize(("examples", "expected"), [(FEWEST, True), (FEWEST - 1, False)])
def test_few_examples_distinguish_nothing(examples: int, expected: bool) -> None:
    interval = bootstrap([np.ones((examples, 1))])
    assert interval is not None
    assert interval.excludes(0) is expected
    assert not interval.excludes(1)


@pytest.mark.parametrize(("tasks", "examples"), [(6, 2), (6, 6), (1, 8)])
def test_equal_methods_seldom_differ_over_few_examples(tasks: int, examples: int) -> None:
    """95 % intervals are wrong one time in twenty; those of few examples, drawn as usual, far more often."""
    rng, wrong, runs = np.random.default_rng(7), 0, 200
    for _ in range(runs):
        interval = bootstrap([rng.choice([-100.0, 0.0, 100.0], size=(examples, 1)) for _ in range(tasks)])
        assert interval is not None
        wrong += interval.excludes(0)
    assert wrong / runs < 0.1


# Numbers


def test_three_losses_of_six_may_be_chance(tmp_path: Path) -> None:
    records = [record("t", str(n), m, float(m == "full" or n > 2)) for n in range(6) for m in ("full", "template")]
    found = row(group_of(write_run(tmp_path / "run", TEXT, records)), "template")
    assert found.full is not None
    assert (found.full.interval.value, found.full.differing) == (-50, 3)
    assert not found.full.distinguishable


def test_differences_are_paired(tmp_path: Path) -> None:
    spread = [0.0, 1.0, 0.2, 0.8, 0.4, 0.6, 0.1, 0.9]
    shifts = [0.0] * 7 + [0.05]
    records = []
    for number, f1 in enumerate(spread):
        records.append(record("t", str(number), "full", 0.9 * f1))
        records.append(record("t", str(number), "template", 0.9 * f1 + 0.02 + shifts[number]))
    found = row(group_of(write_run(tmp_path / "run", TEXT, records)), "template")
    assert found.full is not None
    value, low, high = bounds(found.full.interval)
    assert value == pytest.approx(2 + 5 / 8)
    assert (low, high) == (pytest.approx(2.0), pytest.approx(2 + 15 / 8, abs=0.7))
    assert found.full.distinguishable
    assert found.full.against == "full"
    assert found.template is None
    own = bounds(found.f1)
    assert own[2] - own[1] > 10 * (high - low)


def test_a_constant_difference_is_certain_and_none_is_noise(tmp_path: Path) -> None:
    records = []
    for number in range(8):
        records.append(record("t", str(number), "full", number / 10, micro=[number, 1, 1]))
        records.append(record("t", str(number), "template", number / 10 + 0.2, micro=[number, 1, 1]))
    found = row(group_of(write_run(tmp_path / "a", TEXT, records)), "template")
    assert found.full is not None
    assert bounds(found.full.interval) == pytest.approx((20, 20, 20), abs=1e-9)
    assert found.full.distinguishable
    same = [{**one, "f1": 0.3} for one in records]
    found = row(group_of(write_run(tmp_path / "b", TEXT, same)), "template")
    assert found.full is not None
    assert bounds(found.full.interval) == (0, 0, 0)
    assert not found.full.distinguishable
    assert found.micro is not None
    assert found.micro.value == pytest.approx(100 * 2 * 28 / (2 * 28 + 16))


def test_the_mean_over_tasks_weighs_tasks_alike(tmp_path: Path) -> None:
    records = [record("one", str(n), m, 1.0, micro=[1, 0, 0]) for n in range(2) for m in TEXT]
    records += [record("two", str(n), m, 0.5, micro=[0, 1, 1]) for n in range(8) for m in TEXT]
    tables = tables_of(group_of(write_run(tmp_path / "run", TEXT, records)))
    assert list(tables) == ["one", "two", "mean over tasks"]
    values = [(table[0].f1.value, table[0].micro.value, table[0].examples) for table in tables.values()]  # type: ignore[union-attr]
    assert values == [(100, 100, 2), (50, 0, 8), (75, 50, 10)]


def test_times_are_ratios_to_full_prefill_of_the_same_representation(tmp_path: Path) -> None:
    seconds = {"full:dpi=72": 4.0, "template:dpi=72": 1.0, "qv-pic": 2.0, "template:dpi=120": 3.0}
    records = [record("t", str(n), m, **timed(s * (n + 1), cold=5 * s)) for n in range(6) for m, s in seconds.items()]
    methods = {name: PAGES[name] for name in seconds}
    group = group_of(write_run(tmp_path / "run", methods, records))
    for method, ratio in {"template:dpi=72": 0.25, "qv-pic": 0.5}.items():
        found = row(group, method)
        assert found.ratio is not None
        assert bounds(found.ratio.interval) == pytest.approx((ratio,) * 3)
        assert (found.ratio.against, found.ratio.distinguishable) == ("full:dpi=72", True)
        assert found.warm is not None
        assert found.cold is not None
        assert found.warm.value == pytest.approx(seconds[method] * 3.5)
        assert found.cold.value == pytest.approx(5 * seconds[method])
    assert row(group, "template:dpi=120").ratio is None, "no full prefill at 120 DPI was asked"
    assert row(group, "full:dpi=72").ratio is None
    assert row(group, "qv-pic").template is not None
    assert row(group, "qv-pic").template.against == "template:dpi=72"  # type: ignore[union-attr]


def both(task: str = "t", full: float = 3.0, template: float = 1.0) -> list[Record]:
    times = {"full": full, "template": template}
    return [record(task, str(n), m, **timed(s)) for n in range(6) for m, s in times.items()]


@pytest.mark.parametrize(
    ("full", "template", "costs", "expected"),
    [
        (3.0, 1.0, [cost("d0", seconds=1.0), cost("d1", seconds=4.0)], 5 / 2),
        (1.0, 1.0, [cost("d0"), cost("d1")], math.inf),
        (1.0, 3.0, [cost("d0"), cost("d1")], math.inf),
        (3.0, 1.0, [cost("d0"), cost("d1", seconds=None)], None),
        (3.0, 1.0, [cost("d0")], None),
        (3.0, 1.0, [cost("d0"), cost("d1", write="bare")], None),
    ],
    ids=["paid", "as fast", "slower", "not timed", "not recorded", "of another method"],
)
def test_break_even(tmp_path: Path, full: float, template: float, costs: list[Record], expected: float | None) -> None:
    group = group_of(write_run(tmp_path / "run", TEXT, both(full=full, template=template), costs))
    assert row(group, "template").reuses == (None if expected is None else pytest.approx(expected))
    assert row(group, "full").reuses is None


def test_two_representations_cost_both(tmp_path: Path) -> None:
    times = {"full:dpi=72": 5.0, "template:dpi=72": 1.0, "qv-pic": 1.0}
    records = [record("t", str(n), m, **timed(s)) for n in range(6) for m, s in times.items()]
    costs = [cost(d, f"page@{dpi}", dpi / 24, dpi) for d in ("d0", "d1") for dpi in (72, 120)]
    group = group_of(write_run(tmp_path / "run", {name: PAGES[name] for name in times}, records, costs))
    low, dual = row(group, "template:dpi=72"), row(group, "qv-pic")
    assert (low.document_bytes, low.compile_seconds, low.reuses) == (72, 3, pytest.approx(6 / 4))
    assert (dual.document_bytes, dual.compile_seconds, dual.reuses) == (192, 8, pytest.approx(16 / 4))
    assert row(group, "full:dpi=72").document_bytes is None


def test_companions_cost_the_methods_that_need_them(tmp_path: Path) -> None:
    repairing = {"name": "qcfuse", "write": "bare", "shown": ["text"]}
    methods = {
        "full": TEXT["full"],
        "prefix-free": BARE | {"shown": ["text"]},
        "qcfuse": repairing | {"companions": {"text": ["anchors"]}},
        "qcfuse:layer=1": repairing | {"companions": {"text": ["others"]}},
    }
    times = {"full": 5.0, "prefix-free": 1.0, "qcfuse": 3.0, "qcfuse:layer=1": 3.0}
    records = [record("t", str(n), m, **timed(s)) for n in range(6) for m, s in times.items()]
    costs = [cost(d, write="bare", seconds=2.0) for d in ("d0", "d1")]
    costs += [cost(d, write="bare", size=10) | {"companion": "anchors"} for d in ("d0", "d1")]
    costs += [cost(d, write="bare", seconds=None, size=None) | {"companion": "others"} for d in ("d0", "d1")]
    group = group_of(write_run(tmp_path / "run", methods, records, costs))
    plain, repaired, untimed = (row(group, name) for name in ("prefix-free", "qcfuse", "qcfuse:layer=1"))
    assert (plain.document_bytes, plain.compile_seconds, plain.reuses) == (100, 2, pytest.approx(4 / 4))
    assert (repaired.document_bytes, repaired.compile_seconds, repaired.reuses) == (110, 3, pytest.approx(6 / 2))
    assert (untimed.document_bytes, untimed.compile_seconds, untimed.reuses) == (None, None, None)


def test_failures_are_counted_and_left_out(tmp_path: Path) -> None:
    records = both()
    records[1] = {**{k: records[1][k] for k in ("task", "example", "method", "documents", "gold")}, "error": "Long: 9"}
    group = group_of(write_run(tmp_path / "run", TEXT, records))
    found = row(group, "template")
    assert (found.examples, found.errors) == (5, 1)
    assert found.full is not None
    assert found.full.interval.examples == 5
    write_all([tmp_path / "run"], tmp_path / "report")
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert "- failed: template on 1 examples of t (1 × Long), the first: Long: 9" in markdown
    assert "| template | 5 (1 failed) |" in markdown
    assert "| full | 5 |" in markdown
    assert "- t: 1 of 6 examples are in no number, since not all methods answered" in markdown


def test_a_method_that_mostly_fails_takes_no_examples_from_the_others(tmp_path: Path) -> None:
    records = both()
    for number in (1, 3, 5, 7):
        records[number] = {
            **{key: records[number][key] for key in ("task", "example", "method", "documents", "gold")},
            "error": "Long: 9",
        }
    found = comparable(group_of(write_run(tmp_path / "run", TEXT, records)))
    assert (row(found, "full").examples, row(found, "template").examples) == (6, 0)


def test_cut_contexts_and_answers_are_said(tmp_path: Path) -> None:
    records = [{**one, "facts": {"truncated": one["example"] == "0"}, "finish": "length"} for one in both()]
    write_all([write_run(tmp_path / "run", TEXT, records)], tmp_path / "report")
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert "- t: the middle of 1 of 6 contexts was cut out" in markdown
    assert "- t: answers that ended at the limit of tokens: 6 of full, 6 of template" in markdown


# Grouping


def test_runs_of_other_tasks_are_reported_together(tmp_path: Path) -> None:
    one, two = write_run(tmp_path / "one", TEXT, both("one")), write_run(tmp_path / "two", TEXT, both("two"), seed=3)
    group = group_of(one, two)
    assert list(tables_of(group)) == ["one", "two", "mean over tasks"]
    with pytest.raises(BenchError, match=r"one is in .*one and in .*again: report them apart"):
        gather([one, write_run(tmp_path / "again", TEXT, both("one"))])


def test_other_models_are_reported_side_by_side(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, TEXT, both(), model=name) for name in ("zebra", "ape")]
    assert [group.config["model"] for group in gather(folders)] == ["ape", "zebra"]
    write_all(folders, tmp_path / "report")
    headings = re.findall("^## (.*)$", (tmp_path / "report" / "report.md").read_text(), re.MULTILINE)
    assert headings == ["ape", "zebra"]


def test_reports_say_names_and_not_where_files_lay(tmp_path: Path) -> None:
    """Writers of one name from two folders keep their paths: they could not be told apart."""
    sempic = {"name": "sempic", "write": "w", "shown": ["text"]}
    spelled = ["sempic:adapter=/a/one", "joint:adapter=/a/same", "joint:adapter=/b/same", "joint:adapter=c/d"]
    methods = {"full": TEXT["full"], **dict.fromkeys(spelled, sempic)}
    records = [record("t", "1", method) for method in methods]
    group = group_of(write_run(tmp_path / "run", methods, records, model="/home/me/reader"))
    named = ["full", "sempic:adapter=one", *spelled[1:]]
    assert list(group.methods) == [method for _, method in group.records] == named
    assert group.config["model"] == "reader"


@pytest.mark.parametrize("source", ["XQuAD en, /data/x.json", "HotpotQA, https://a.org/b/c", "xquad/en.json"])
def test_reports_say_what_the_data_was_and_not_where_it_lay(tmp_path: Path, source: str) -> None:
    run = write_run(tmp_path / "run", TEXT, both())
    config = json.loads((run / CONFIG).read_text())
    config["tasks"][0]["source"] = source
    (run / CONFIG).write_text(json.dumps(config))
    assert group_of(run).tasks["t"]["source"] == source.replace("/data/", "")


def test_an_unfinished_run_is_reported_as_far_as_it_is(tmp_path: Path) -> None:
    records = both()
    group = group_of(write_run(tmp_path / "run", TEXT, records[:-1]))
    assert row(group, "full").examples == row(group, "template").examples == 5
    with pytest.raises(BenchError, match="no example is recorded yet"):
        gather([write_run(tmp_path / "empty", TEXT, [])])


# What is written


def write_all(folders: list[Path], out: Path) -> list[str]:
    return [path.name for path in write_report(folders, out)]


@pytest.fixture
def page_run(tmp_path: Path) -> Path:
    """Six methods over pages, two numbers of documents, gold places known."""
    records = []
    for number in range(12):
        documents = [f"d{place}" for place in range(2 + number % 2)]
        for place, method in enumerate(PAGES):
            times = timed((10 - place) * len(documents), cold=99.0)
            records.append(record("t", str(number), method, place / 8, documents=documents, gold=[number % 2], **times))
    costs = [
        cost(f"d{place}", f"page@{dpi}", write=write)
        for place in range(3)
        for dpi in (72, 120)
        for write in ("template", "bare")
    ]
    return write_run(tmp_path / "pages", PAGES, records, costs)


def drawn(folder: Path) -> dict[str, Figure]:
    group = group_of(folder)
    return {figure.name: figure for figure in figures(group, tables_of(group))}


def points(figure: Figure) -> dict[str, list[tuple[float, float]]]:
    (panel,) = figure.panels
    return {series.name: [(point.x, point.y.value) for point in series.points] for series in panel.series}


def test_figures_hold_the_tables_numbers(page_run: Path) -> None:
    found = drawn(page_run)
    assert all(figure.panels for figure in found.values())
    tradeoff = points(found["tradeoff"])
    # 2 or 3 documents, equally often; the third and fourth method are two resolutions of one.
    assert tradeoff["template, pages"] == [(7 * 2500, 100 * 3 / 8), (8 * 2500, 100 * 2 / 8)]
    assert tradeoff["qv-pic"] == [(6 * 2500, 100 * 4 / 8)]
    assert [point.note for point in found["tradeoff"].panels[0].series[2].points] == ["72 DPI", "120 DPI"]
    assert points(found["quality"])["qv-pic"] == [(4, 50)]
    assert list(points(found["ablation"]).values()) == [[(0, 12.5)], [(1, 62.5)], [(2, 37.5)], [(3, 50)]]
    assert points(found["documents"])["full:dpi=72"] == [(2, 20000), (3, 30000)]
    assert points(found["bytes"])["qv-pic"] == [(200 / 1e6, 50)]
    assert points(found["break-even"])["qv-pic"] == [(2, pytest.approx(2 * 2.5 / (4 * 2.5)))]


def test_quality_by_place_counts_every_document_that_holds_the_answer(tmp_path: Path) -> None:
    many = [f"d{n}" for n in range(20)]
    records = [record("t", "a", "full", 1.0, documents=many, gold=[0, 19])]
    records += [record("t", "b", "full", 0.0, documents=many[:10], gold=[0, 1])]
    records += [record("t", "c", "full", 0.5, documents=many[:3], gold=[2])]
    found = points(drawn(write_run(tmp_path / "run", {"full": TEXT["full"]}, records))["positions"])
    assert found["full"] == [(10, 50), (90, 75)]


def test_places_of_several_tasks_are_shown_apart(tmp_path: Path) -> None:
    records = [record(task, "a", "full", f1, gold=[0]) for task, f1 in (("one", 1.0), ("two", 0.5))]
    panels = drawn(write_run(tmp_path / "run", {"full": TEXT["full"]}, records))["positions"].panels
    assert [(panel.title, panel.series[0].points[0].y.value) for panel in panels] == [("one", 100), ("two", 50)]
    write_all([tmp_path / "run"], tmp_path / "report")
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert "### two: F1 by place of a document that holds the answer\n\n| method | 1 |" in markdown
    assert "| full | 50.0 [50.0, 50.0] |" in markdown


def test_many_methods_leave_figures_their_room(tmp_path: Path) -> None:
    names = [f"dummy:k={k}" for k in range(1, 40)]
    methods = {name: {"name": "dummy", "write": name, "shown": ["text"]} for name in names}
    records = [record("t", str(n), name, n / 7, gold=[n % 2]) for n in range(6) for name in names]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns where axes have no room
        write_all([write_run(tmp_path / "run", methods, records)], tmp_path / "report")


def test_figures_without_data_say_so(tmp_path: Path) -> None:
    found = drawn(write_run(tmp_path / "run", TEXT, both()))
    missing = {name: figure.missing for name, figure in found.items() if not figure.panels}
    assert set(missing) == {"ablation", "positions", "documents", "bytes", "break-even"}
    assert "qv-pic" in missing["ablation"]
    assert "hold the answer" in missing["positions"]
    write_all([tmp_path / "run"], tmp_path / "report")
    html = (tmp_path / "report" / "report.html").read_text()
    assert all(f"left out, {line}." in html for line in missing.values())
    assert html.count("<figure>") == 2


def test_the_ablation_names_what_it_lacks(page_run: Path, tmp_path: Path) -> None:
    methods = {name: facts for name, facts in PAGES.items() if name != "prefix-free:dpi=72"}
    records = [record("t", "a", method) for method in methods]
    figure = drawn(write_run(tmp_path / "run", methods, records))["ablation"]
    assert figure.missing == "no method of this run shows page@72, without template"


def test_resolutions_are_joined_and_representations_are_not(tmp_path: Path) -> None:
    methods = {**TEXT, **PAGES, "full:dpi=120": FULL | {"shown": ["page@120"]}}
    group = group_of(write_run(tmp_path / "run", methods, [record("t", "a", method) for method in methods]))
    found = families(group)
    assert found["full, pages"] == ["full:dpi=72", "full:dpi=120"]
    assert found["template, pages"] == ["template:dpi=72", "template:dpi=120"]
    assert found["full"] == ["full"]
    assert sum(map(len, found.values())) == len(methods)


def test_settings_are_not_joined_and_repair_is_not_ablated(tmp_path: Path) -> None:
    epics = {f"epic:k={k},dpi={dpi}": EPIC | {"shown": [f"page@{dpi}"]} for k in (2, 4) for dpi in (72, 120)}
    methods = {**epics, **PAGES}
    folder = write_run(tmp_path / "run", methods, [record("t", "a", method) for method in methods])
    found = families(group_of(folder))
    assert found["epic:k=2, pages"] == ["epic:k=2,dpi=72", "epic:k=2,dpi=120"]
    assert found["epic:k=4, pages"] == ["epic:k=4,dpi=72", "epic:k=4,dpi=120"]
    colours = [series.colour for series in drawn(folder)["ablation"].panels[0].series]
    assert colours[0] == list(methods).index("prefix-free:dpi=72")


def test_rounding_does_not_stop_a_figure(tmp_path: Path) -> None:
    records = [record("t", str(n), m, 2 / 3) for n in range(11) for m in TEXT]
    assert len(write_all([write_run(tmp_path / "run", TEXT, records)], tmp_path / "report")) == 3


def test_the_page_is_well_formed_and_loads_nothing(page_run: Path, tmp_path: Path) -> None:
    folders = [page_run, write_run(tmp_path / "text", TEXT, both(), model="<other> & model")]
    assert write_all(folders, tmp_path / "report") == ["report.md", "report.csv", "report.html"]
    html = (tmp_path / "report" / "report.html").read_text("utf-8")
    root = ET.fromstring(html)
    assert [heading.text for heading in root.iter("h2")] == ["<other> & model", "tiny/model"]
    assert set(re.findall(r"https?://[^\s\"'<)]*", html)) == {SVG}
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\((?!#)", html)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    used = {value[1:] for element in root.iter() if (value := element.get("href"))}
    used |= set(re.findall(r"url\(#([^)]*)\)", html))
    assert used
    assert used <= set(ids)
    pictures = list(root.iter(f"{{{SVG}}}svg"))
    assert len(pictures) == 7 + 2
    assert all(picture.get("aria-label") for picture in pictures)


def test_the_same_runs_give_the_same_bytes(page_run: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_all([page_run], tmp_path / name)
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_tables_mark_what_may_be_noise(tmp_path: Path) -> None:
    records = [
        record("t", str(n), m, f1, **timed(f1)) for n in range(6) for m, f1 in (("full", 0.5), ("template", 0.4))
    ]
    write_all([write_run(tmp_path / "run", TEXT, records)], tmp_path / "report")
    lines = (tmp_path / "report" / "report.md").read_text().splitlines()
    headers, cells = (
        [cell.strip() for cell in next(line for line in lines if line.startswith(start)).strip("|").split("|")]
        for start in ("| method", "| template")
    )
    shown = dict(zip(headers, cells, strict=True))
    assert shown["F1"] == "40.0 [40.0, 40.0]"
    assert shown["F1 to full prefill"] == "-10.0 [-10.0, -10.0] (to full)"
    assert shown["TTFT to full prefill"] == "0.800 [0.800, 0.800] (to full)"
    assert (shown["TTFT warm, ms"], shown["TTFT cold, ms"]) == ("400.0 [400.0, 400.0]", "–")
    write_all([write_run(tmp_path / "few", TEXT, records[:10])], tmp_path / "again")
    assert "-10.0 [-10.0, -10.0], not distinguishable (to full)" in (tmp_path / "again" / "report.md").read_text()


def test_what_was_never_cold_is_said(tmp_path: Path) -> None:
    records = [{**one, "cold": IN_MEMORY} if one["method"] == "template" else one for one in both()]
    write_all([write_run(tmp_path / "run", TEXT, records, [cost("d0", seconds=None)])], tmp_path / "report")
    markdown = (tmp_path / "report" / "report.md").read_text()
    assert f"- not measured cold (6 records): {IN_MEMORY}" in markdown
    assert "- 1 of 1 compiles were not timed: the bank held their records before the run" in markdown


def test_csv_has_every_number(page_run: Path, tmp_path: Path) -> None:
    write_all([page_run], tmp_path / "report")
    with (tmp_path / "report" / "report.csv").open(newline="") as file:
        lines = {line["method"]: line for line in csv.DictReader(file)}
    assert list(lines) == list(PAGES)
    found = lines["qv-pic"]
    assert (found["model"], found["task"], found["examples"]) == ("tiny/model", "t", "12")
    assert float(found["f1"]) == 50
    assert float(found["f1_to_full"]) == pytest.approx(50)
    assert (found["f1_to_full_against"], found["f1_to_full_distinguishable"]) == ("full:dpi=72", "True")
    assert float(found["ttft_to_full"]) == pytest.approx(0.6)
    assert float(found["document_bytes"]) == 200
    assert float(found["break_even"]) == pytest.approx(0.5)
    assert lines["full:dpi=72"]["break_even"] == ""


def test_without_matplotlib_the_tables_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BenchError, match=r"pip install 'kvbind\[bench\]'"):
        write_all([write_run(tmp_path / "run", TEXT, both())], tmp_path / "report")
    assert sorted(path.name for path in (tmp_path / "report").iterdir()) == ["report.csv", "report.md"]
