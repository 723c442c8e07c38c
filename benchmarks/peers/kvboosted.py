"""KVBoost (PyPI: kvboost): chunks of a fixed number of tokens, found by what stands before them or by content.

Run by compare.py, in a process and an environment of its own.
"""

import time
from typing import Any

import torch
from common import Ask, Timed, main, until_stop
from kvboost import GenerationMode, KVBoost
from transformers import AutoModelForCausalLM, AutoTokenizer

CACHE_BYTES = 8 << 30
BASELINE, REUSING = GenerationMode.BASELINE, GenerationMode.CHUNK_KV_REUSE


class Boosted:
    """Its default settings (chunks reused, the last 16 tokens of each computed anew), and nothing reused."""

    methods = ("kvboost-full", "kvboost")

    def __init__(self, options: Any) -> None:
        # Not by KVBoost.from_pretrained, which loads every model in float16.
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype)).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(options.model)
        self.engine = KVBoost(
            model=model,
            tokenizer=self.tokenizer,
            max_cache_bytes=CACHE_BYTES,
            chunk_size=options.chunk_size,
            device=options.device,
        )

    def prime(self, ask: Ask) -> None:
        self.engine.reset_cache()
        self.generate(ask, 1, [], REUSING)

    def answer(self, method: str, ask: Ask, max_tokens: int) -> Timed:
        """Timed around `generate`: the time that it reports begins only after tokens were found and repaired."""
        told: list[tuple[int, float]] = []
        start = time.perf_counter()
        result = self.generate(ask, max_tokens, told, BASELINE if method == "kvboost-full" else REUSING)
        ids = until_stop([token for token, _ in told], ask.stops)
        own = result.ttft_ms / 1000
        return Timed(ids, told[0][1] - start, result.cached_tokens, result.prompt_tokens, own)

    def generate(self, ask: Ask, max_tokens: int, told: list[tuple[int, float]], mode: GenerationMode) -> Any:
        bos = self.tokenizer.bos_token or ""
        doubled = bos and self.tokenizer.encode("")[:1] == [self.tokenizer.bos_token_id]
        return self.engine.generate(
            ask.text.removeprefix(bos) if doubled else ask.text,
            max_new_tokens=max_tokens,
            mode=mode,
            cacheable_prefix_len=ask.before_question,  # the question is computed each time, as everywhere here
            on_token=lambda token: told.append((token, time.perf_counter())),
        )


if __name__ == "__main__":
    main(Boosted)
