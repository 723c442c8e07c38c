"""Hugging Face prefix reuse: the cache of an earlier request, cut to what the next one begins with.

Run by compare.py, in a process of its own: it needs torch and transformers alone.
"""

import time
from typing import Any

import torch
from common import Ask, Timed, main, until_stop
from transformers import AutoModelForCausalLM, DynamicCache

FEWEST = 32  # shared tokens below which nothing is reused: a forward pass over a cache is slower than one without


class Prefix:
    """Full prefill (`hf-full`), and reuse of the longest common prefix with the request before (`hf-prefix`)."""

    methods = ("hf-full", "hf-prefix")

    def __init__(self, options: Any) -> None:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=getattr(torch, options.dtype))
        self.model = model.to(options.device).eval()
        self.known: tuple[list[int], DynamicCache] = ([], self.empty())

    def empty(self) -> DynamicCache:
        return DynamicCache(config=self.model.config.get_text_config())

    def prime(self, ask: Ask) -> None:
        """Answer the earlier request, whose keys and values are kept."""
        cache = self.empty()
        self.read(ask.ids, cache)
        self.known = ask.ids, cache

    def answer(self, method: str, ask: Ask, max_tokens: int) -> Timed:
        start = time.perf_counter()
        shared = 0 if method == "hf-full" else self.shared(ask.ids)
        shared = shared if shared >= FEWEST else 0
        cache = self.cut(shared) if shared else self.empty()
        logits = self.read(ask.ids[shared:], cache)
        token = int(logits.argmax())
        ttft = time.perf_counter() - start
        ids = [token]
        while len(ids) < max_tokens and token not in ask.stops:
            token = int(self.read([token], cache).argmax())
            ids.append(token)
        return Timed(until_stop(ids, ask.stops), ttft, shared, len(ask.ids))

    @torch.no_grad()
    def read(self, ids: list[int], cache: DynamicCache) -> torch.Tensor:
        """Logits (V,) of the last token, all of them added to the cache."""
        rows = torch.tensor([ids], device=self.model.device)
        return self.model(input_ids=rows, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1].float().cpu()

    def shared(self, ids: list[int]) -> int:
        """How many tokens stand in both requests from the first on; the last one must be computed."""
        known = self.known[0]
        pairs = enumerate(zip(ids[:-1], known, strict=False))
        return next((number for number, (one, other) in pairs if one != other), min(len(ids) - 1, len(known)))

    def cut(self, rows: int) -> DynamicCache:
        """A copy of the kept cache's first rows."""
        cache = self.empty()
        for number, layer in enumerate(self.known[1].layers):
            cache.update(layer.keys[:, :, :rows], layer.values[:, :, :rows], number)
        return cache


if __name__ == "__main__":
    main(Prefix)
