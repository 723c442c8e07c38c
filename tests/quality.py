"""F1 of the built-in reader by method, on 60 held-out questions over five notes each.

python tests/quality.py      measures, and records what tests/test_quality.py holds every change to
"""

import json
from collections.abc import Sequence
from pathlib import Path

from kvbind import Engine
from kvbind.notes import make_sample
from kvbind.scores import longbench_f1
from kvbind.steps.decode import Sampling

RECORD = Path(__file__).parent / "quality.json"
SAMPLES = [make_sample(seed, notes=5) for seed in range(60)]
METHODS = (
    *("full", "template", "prefix-free"),
    *("full:dpi=120", "full:dpi=72", "template:dpi=120", "prefix-free:dpi=120", "qv-pic"),
)


def measure(methods: Sequence[str] = METHODS) -> dict[str, float]:
    """Mean F1 by method, 0 to 100."""
    engine = Engine.from_pretrained("pocket", dtype="float32")
    return {method: round(_f1(engine, method), 1) for method in methods}


def _f1(engine: Engine, method: str) -> float:
    scores = [
        longbench_f1(
            engine.ask(sample.question, list(sample.notes), method=method, sampling=Sampling(max_tokens=24)).text,
            [sample.answer],
        )
        for sample in SAMPLES
    ]
    return 100 * sum(scores) / len(scores)


if __name__ == "__main__":
    found = measure()
    RECORD.write_text(json.dumps(found, indent=2) + "\n")
    print(RECORD.read_text())
