"""The benchmark's tasks by name, and how their spelling is read: `hotpotqa:paragraphs=5`."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kvbind.bench.example import Task
from kvbind.bench.tasks.generated import biographies
from kvbind.bench.tasks.haystack import needles
from kvbind.bench.tasks.kv_retrieval import kv_retrieval
from kvbind.bench.tasks.longbench import longbench
from kvbind.bench.tasks.multihop import cacheblend_musique, hotpotqa, musique
from kvbind.bench.tasks.options import TaskOptions
from kvbind.bench.tasks.reading import nq_open, xquad
from kvbind.errors import BenchError

__all__ = ["TaskOptions", "load_task", "task_names"]

TASKS: Mapping[str, tuple[Callable[..., Task], str]] = {
    "longbench-2wikimqa": (partial(longbench, "2wikimqa"), "LongBench: two hops over ten passages of Wikipedia"),
    "longbench-hotpotqa": (partial(longbench, "hotpotqa"), "LongBench: two hops over up to ten long passages"),
    "longbench-musique": (partial(longbench, "musique"), "LongBench: two to four hops over up to twenty passages"),
    "longbench-multifieldqa_en": (
        partial(longbench, "multifieldqa_en", tokens=512),
        "LongBench: one long article, in pieces of 512 tokens",
    ),
    "longbench-triviaqa": (partial(longbench, "triviaqa"), "LongBench: a passage after solved examples, few-shot"),
    "longbench-narrativeqa": (
        partial(longbench, "narrativeqa", tokens=512),
        "LongBench: one book or script, in pieces of 512 tokens",
    ),
    "hotpotqa": (hotpotqa, "HotpotQA's own files: two hops, gold paragraphs known"),
    "musique": (musique, "MuSiQue's own files: two to four hops, gold paragraphs known"),
    "cacheblend-musique": (cacheblend_musique, "CacheBlend's MuSiQue: ten chunks of 512 tokens per question"),
    "xquad": (xquad, "XQuAD: an article's paragraphs in one of several languages"),
    "nq-open": (nq_open, "NQ-open: the gold passage among sampled ones"),
    "kv-retrieval": (kv_retrieval, "one UUID's value among many pairs"),
    "biographies": (biographies, "made-up notes of people, products or incidents, needs no data"),
    "needles": (needles, "RULER's needles in a text file or, with haystack=notes, in made-up notes"),
}
"""What loads a task, and a line about it; a loader's keyword arguments are the task's parameters."""

_SWITCHES = {"": True, "on": True, "true": True, "yes": True, "1": True} | dict.fromkeys(
    ("off", "false", "no", "0"), False
)


def task_names() -> dict[str, str]:
    """What there is: a line about each task, by name."""
    return {name: line for name, (_, line) in TASKS.items()}


def load_task(spelling: str, options: TaskOptions) -> Task:
    """A task from its spelling, `name` or `name:key=value,…`, which becomes its name.

    The same seed gives the same examples, and fewer are the first of more. BenchError names what is wrong with the
    spelling or the data.
    """
    name, _, rest = spelling.partition(":")
    if name not in TASKS:
        raise BenchError(f"unknown task {name!r}; known are {', '.join(TASKS)}")
    load, _ = TASKS[name]
    task = load(options, **_values(name, rest, inspect.signature(load).parameters))
    chunking = f"{task.chunking}; shown as page images, one chunk per page"
    return replace(task, name=spelling, chunking=chunking)


def _values(name: str, rest: str, parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    taken = {key: found.default for key, found in parameters.items() if found.kind is found.KEYWORD_ONLY}
    values: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, text = item.partition("=")
        if key not in taken:
            raise BenchError(f"{name} takes no parameter {key!r}; it takes {', '.join(taken)}")
        if key in values:
            raise BenchError(f"{name}: {key} is given twice")
        values[key] = _value(f"{name}:{item}", text, taken[key])
    return values


def _value(item: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in _SWITCHES:
            raise BenchError(f"{item}: expected on or off")
        return _SWITCHES[text.lower()]
    try:
        return type(default)(text)
    except ValueError:
        raise BenchError(f"{item}: expected {type(default).__name__}, like {default}") from None
