"""Naming the glyphs and the words under each visual token: what the vision tower learns first, and is held to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from model import CARD, DPIS
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

GLYPHS = " !'(),-./0123456789:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyzö"
CELL = 28
"""Pixels a visual token spans in each direction."""
BINS = 14
"""Places under a visual token that are told apart, in each direction."""
WORDS = 1.0
"""Weight of naming text tokens beside naming glyphs."""


@dataclass(frozen=True)
class Marks:
    """What stands on a page: glyphs (G, 3) and text tokens (W, 3), each as code or id, x and y in points."""

    glyphs: np.ndarray
    words: np.ndarray


def mark(tokenizer: Any, text: str, glyphs: np.ndarray) -> Marks:
    """The marks of a text whose glyphs are known: a token stands where its first glyph does."""
    read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    inked = np.cumsum([not character.isspace() for character in text])
    found = []
    for token, (start, stop) in zip(read["input_ids"], read["offset_mapping"], strict=True):
        first = next((at for at in range(start, stop) if not text[at].isspace()), None)
        if first is not None:
            found.append((token, *glyphs[inked[first] - 1, 1:]))
    return Marks(glyphs, np.array(found, dtype=np.float32))


class Namer(nn.Module):
    """From a visual token (…, C) and a place under it, the glyph at that place: used in training alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Linear(width, width)
        self.scale = nn.ModuleDict({str(dpi): nn.Embedding(BINS * BINS, width) for dpi in DPIS})
        self.shift = nn.ModuleDict({str(dpi): nn.Embedding(BINS * BINS, width) for dpi in DPIS})
        self.glyph = nn.Linear(width, len(GLYPHS))
        for table in self.shift.values():
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, tokens: Tensor, place: Tensor, dpi: int) -> Tensor:
        """Logits (G, glyphs) for tokens (G, C) at bins (G,)."""
        turned = self.token(tokens) * self.scale[str(dpi)](place) + self.shift[str(dpi)](place)
        return self.glyph(gelu(turned))


def locate(marks: Sequence[np.ndarray], dpi: int, most: int = 120) -> tuple[Tensor, Tensor, Tensor]:
    """Flat visual token, bin and code (G,) of the marks of some pages, a part of each page's if they are many."""
    columns = CARD.width * dpi // 72 // CELL
    tokens = columns * (CARD.height * dpi // 72 // CELL)
    found = []
    for number, page in enumerate(marks):
        part = page[np.random.default_rng(number).permutation(len(page))[:most]] if len(page) > most else page
        x, y = (part[:, axis] * dpi / 72 for axis in (1, 2))
        token = number * tokens + (y // CELL).astype(int) * columns + (x // CELL).astype(int)
        place = (y % CELL * BINS / CELL).astype(int) * BINS + (x % CELL * BINS / CELL).astype(int)
        found.append(np.stack([token, place, part[:, 0].astype(int)]))
    joined = torch.from_numpy(np.concatenate(found, axis=1))
    return joined[0], joined[1], joined[2]


def naming(
    namer: Namer, words: Tensor, features: Mapping[int, Tensor], marks: Mapping[int, Sequence[Marks]]
) -> tuple[Tensor, dict[str, float]]:
    """Loss of naming what stands under visual tokens (N, P, C), given by DPI, and the shares right by name.

    Glyphs are named by the namer. Text tokens are named by the visual token itself, which is to lie near the
    embeddings `words` (V, C) of those that begin under it: what was learned in text then serves for pages.
    """
    losses, right = [], {}
    for dpi, seen in features.items():
        flat = seen.flatten(0, 1)
        token, place, code = (part.to(seen.device) for part in locate([page.glyphs for page in marks[dpi]], dpi))
        logits = namer(flat[token], place, dpi).float()
        losses.append(cross_entropy(logits, code))
        right[f"named/{dpi}"] = float((logits.argmax(-1) == code).float().mean())
        token, _, code = (part.to(seen.device) for part in locate([page.words for page in marks[dpi]], dpi))
        logits = (flat[token] @ words.detach().to(flat.dtype).T).float() / words.shape[1] ** 0.5
        losses.append(WORDS * cross_entropy(logits, code))
        right[f"words/{dpi}"] = float((logits.detach().topk(5).indices == code[:, None]).any(-1).float().mean())
    return torch.stack(losses).sum() / len(features), right
