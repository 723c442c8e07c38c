"""F1 of the pocket reader by method, on notes that training never saw, through kvbind's own engine.

python training/pocket/evaluate.py MODEL_FOLDER --samples 100 --out scores.json
"""

import argparse
import json
import math
import time
from pathlib import Path
from random import Random
from typing import Any

import torch

from kvbind import Engine
from kvbind.notes import make_sample
from kvbind.scores import exact_match, longbench_f1
from kvbind.steps.decode import Sampling
from kvbind.types import PageSpec

METHODS = (
    *("full", "full:dpi=120", "full:dpi=72", "prefix-free", "prefix-free:dpi=120", "prefix-free:dpi=72"),
    *("template", "template:dpi=120", "template:dpi=72", "qv-pic", "qv-pic:template=off"),
)


def interval(values: list[float], draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of a mean."""
    rng = Random(0)
    means = sorted(math.fsum(rng.choices(values, k=len(values))) / len(values) for _ in range(draws))
    return means[int(draws * 0.025)], means[int(draws * 0.975)]


def card(folder: Path) -> PageSpec:
    """The page that the model reads best, as its folder says."""
    return PageSpec(**json.loads((folder / "kvbind.json").read_text())["page"])


def measure(engine: Engine, method: str, samples: list[Any]) -> dict[str, Any]:
    """Scores of one method over some samples, in all and by the gold note's place, and the answers themselves."""
    sampling, answers, start = Sampling(max_tokens=32), [], time.perf_counter()
    for sample in samples:
        answers.append(engine.ask(sample.question, list(sample.notes), method=method, sampling=sampling).text)
    scores = [100 * longbench_f1(answer, [sample.answer]) for answer, sample in zip(answers, samples, strict=True)]
    by_place: dict[int, list[float]] = {}
    by_kind: dict[str, list[float]] = {}
    for sample, value in zip(samples, scores, strict=True):
        by_place.setdefault(sample.gold, []).append(value)
        by_kind.setdefault(f"{sample.kind}/{sample.attribute}", []).append(value)
    low, high = interval(scores)
    return {
        "f1": mean(scores),
        "interval": [round(low, 1), round(high, 1)],
        "exact": mean([100 * exact_match(a, [s.answer]) for a, s in zip(answers, samples, strict=True)]),
        "by_place": {place: mean(values) for place, values in sorted(by_place.items())},
        "by_attribute": {name: mean(values) for name, values in sorted(by_kind.items())},
        "seconds": round(time.perf_counter() - start, 1),
        "answers": [[sample.question, sample.answer, answer] for sample, answer in zip(samples, answers, strict=True)],
    }


def mean(values: list[float]) -> float:
    """The mean, to a tenth."""
    return round(math.fsum(values) / len(values), 1)


def main() -> None:
    """Measure, print a table, and write everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--notes", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--split", default="eval", choices=("eval", "train"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    engine = Engine.from_pretrained(arguments.model, dtype=arguments.dtype, page=card(arguments.model))
    samples = [make_sample(seed, notes=arguments.notes, split=arguments.split) for seed in range(arguments.samples)]
    results = {}
    print(f"{'method':<24}{'F1':>6}{'95 %':>14}{'exact':>7}  by place of the gold note")
    for method in arguments.methods:
        found = results[method] = measure(engine, method, samples)
        low, high = found["interval"]
        places = " ".join(f"{value:5.1f}" for value in found["by_place"].values())
        print(f"{method:<24}{found['f1']:6.1f}{low:7.1f}–{high:5.1f}{found['exact']:7.1f}  {places}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
