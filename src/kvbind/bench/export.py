"""A task's examples as lines of JSON, as `kvbind train` and `kvbind diagnose` read them."""

import json
from collections.abc import Iterator

from kvbind.bench.example import Example, Task


def lines(task: Task) -> Iterator[str]:
    """One line for each example, with the prompt for documents shown as text."""
    return map(_line, task.examples)


def _line(example: Example) -> str:
    record = {
        "documents": [document.text for document in example.documents],
        "question": example.text.after,
        "answer": list(example.answers),
        **({"before": example.text.before} if example.text.before else {}),
    }
    return json.dumps(record, ensure_ascii=False)
