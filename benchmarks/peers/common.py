"""What the systems' processes share: requests in, answers and times out. Imports torch alone."""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch


@dataclass(frozen=True)
class Ask:
    """One request: token ids, the same as text, how many tokens stand before the question, and stop tokens."""

    ids: list[int]
    text: str
    before_question: int
    stops: list[int]


@dataclass(frozen=True)
class Timed:
    """An answer's token ids without the stop token, seconds to the first one, and tokens reused, of the prompt's.

    `own_ttft`: what the system itself says.
    """

    ids: list[int]
    ttft: float
    reused: int
    prompt: int
    own_ttft: float | None = None


class System(Protocol):
    """A system in its process. `prime` starts from nothing and answers a request; `answer` may reuse what that left."""

    methods: tuple[str, ...]

    def prime(self, ask: Ask) -> None: ...

    def answer(self, method: str, ask: Ask, max_tokens: int) -> Timed: ...


def until_stop(ids: list[int], stops: list[int]) -> list[int]:
    """The ids before the first stop token."""
    return ids[: next((place for place, token in enumerate(ids) if token in stops), len(ids))]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("model", "dtype", "device", "requests", "answers"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("threads", "repeats", "chunk-size"):
        parser.add_argument(f"--{name}", required=True, type=int)
    return parser.parse_args()


def main(make: Callable[[argparse.Namespace], System]) -> None:
    """Answer every request by every method of the system: once whole, then `repeats` times up to the first token."""
    given = options()
    torch.set_num_threads(given.threads)
    system = make(given)
    lines = Path(given.requests).read_text("utf-8").splitlines()
    with Path(given.answers).open("w", encoding="utf-8") as out:
        for number, line in enumerate(lines):
            request = json.loads(line)
            for record in answers(system, request, given.repeats, warm_up=not number):
                out.write(json.dumps(record) + "\n")
                out.flush()


def answers(system: System, request: dict[str, Any], repeats: int, *, warm_up: bool) -> Iterator[dict[str, Any]]:
    """One record for each method. Each time the earlier request, `primer`, is answered first, from an empty cache."""
    primer, ask = Ask(**request["primer"]), Ask(**request["ask"])

    def once(method: str, max_tokens: int) -> Timed:
        system.prime(primer)
        return system.answer(method, ask, max_tokens)

    for method in system.methods if warm_up else ():
        once(method, 1)
    whole = {method: once(method, request["max_tokens"]) for method in system.methods}
    timed: dict[str, list[Timed]] = {method: [] for method in system.methods}
    for _ in range(repeats):
        for method in system.methods:
            timed[method].append(once(method, 1))
    for method, first in whole.items():
        ttft = [one.ttft for one in timed[method]]
        own = [one.own_ttft for one in timed[method]]
        place = {"task": request["task"], "example": request["example"], "method": method}
        yield {**place, **asdict(first), "ttft": ttft, "own_ttft": own if own[0] is not None else None}
