"""What every task is loaded with."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Where a task's data lies, how much of it is asked, and the model's tokenizer.

    `data` is a folder or a file, `n` how many examples (None: all), `window` the model's window in tokens, which
    LongBench's prompts are cut to; `encode` and `decode` are text to token ids, without special tokens, and back.
    """

    data: Path | None
    n: int | None
    seed: int = 0
    window: int = 4096
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
