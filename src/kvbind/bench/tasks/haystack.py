"""Needles in a haystack: a text file, the package's own notes, or other needles."""

from pathlib import Path
from random import Random
from typing import cast, get_args

from kvbind.bench.chunking import pieces
from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.needles import VALUES, Needle, ask, draw, plant
from kvbind.bench.tasks.generated import ALL, SEEDS
from kvbind.bench.tasks.options import TaskOptions
from kvbind.bench.tasks.prompts import ONLY, document
from kvbind.bench.tasks.records import find, read_text, wanted
from kvbind.errors import BenchError
from kvbind.notes import Split, make_sample

_DEPTHS = [100 * step / 39 for step in range(40)]  # RULER's
_MARGIN = 2  # a haystack that is made has so many times the tokens that an example shows of it
_NEEDLE_TOKENS = 16  # a sentence with a needle has more


def needles(
    options: TaskOptions,
    *,
    haystack: str = "sherlock_holmes",
    value: str = "number",
    keys: int = 1,
    values: int = 1,
    queries: int = 1,
    depth: float = -1.0,
    tokens: int = 2048,
    chunk: int = 512,
    split: str = "eval",
) -> Task:
    """RULER's needles: `values` values for each of `keys` keys, `queries` of which are asked for.

    `haystack`: a text file, the name of one under haystack/ in the data, "notes" (the package's own) or "needles"
    (nothing but other needles). Each example shows about `tokens` tokens of it, in chunks of `chunk`, and the needles.
    `depth`: where the needles asked for stand, in percent of the sentences; below 0 each is drawn. RULER's multikey_1
    is keys=4, multivalue values=4, multiquery queries=4; multikey_2 haystack=needles, multikey_3 value=uuid as well.
    A haystack that is made is another one for each seed and for each `split`, eval or train.
    """
    if split not in get_args(Split):
        raise BenchError(f"needles:split={split}: choose {' or '.join(get_args(Split))}")
    if value not in VALUES:
        raise BenchError(f"needles:value={value}: choose {', '.join(VALUES)}")
    if min(keys, values, queries) < 1 or depth > 100 or not 1 <= chunk <= tokens:
        raise BenchError(
            f"needles:keys={keys},values={values},queries={queries},depth={depth:g},tokens={tokens},chunk={chunk}: "
            "keys, values and queries are 1 or more, a depth is 100 at most, a chunk no longer than the tokens"
        )
    text, source = _haystack(haystack, value, tokens, options, cast(Split, split))
    held, shown = pieces(text, chunk, options.encode), tokens // chunk
    if len(held) < shown:
        raise BenchError(f"{source}: has {len(held)} chunks of {chunk} tokens, {shown} are asked for: ask for fewer")
    examples = []
    for number in range(wanted(options) or ALL):
        rng = Random(f"needles/{options.seed}/{number}")
        first = rng.randrange(len(held) - shown + 1)
        chunks = held[first : first + shown]
        drawn = draw(rng, value, keys=max(keys, queries), values=values, queries=queries, beside="\n".join(chunks))
        examples.append(_example(f"needles-{options.seed}-{number}", chunks, drawn, depth, rng))
    micro = "whole" if value == "word" else "niah"  # whose rule for "and" and "in" cuts words apart
    words = f"pieces of at most {chunk} tokens that end with a sentence, one chunk each, needles put in afterwards"
    return Task("needles", examples, 128, words, f"needles as RULER's in {source}", micro=micro)


def _example(name: str, chunks: list[str], drawn: list[Needle], depth: float, rng: Random) -> Example:
    depths = [depth if depth >= 0 and needle.asked else rng.choice(_DEPTHS) for needle in drawn]
    texts, places = plant(chunks, drawn, depths)
    before, question, answer = ask(drawn)
    after = f"{question} {ONLY}\nAnswer:"
    asked = [number for number, needle in enumerate(drawn) if needle.asked]
    return Example(
        name,
        tuple(document("needles", text) for text in texts),
        question,
        Prompt(before, after),
        Prompt("", before.replace("following text", "text in the images") + after),
        (answer,),
        tuple(sorted({places[number] for number in asked})),
        {"depth": round(depths[asked[0]], 1), "depths": [round(depths[number], 1) for number in asked]},
    )


def _haystack(name: str, value: str, tokens: int, options: TaskOptions, split: Split) -> tuple[str, str]:
    """The text, and where it comes from."""
    if name == "notes":
        return _notes(tokens, options, split), f"kvbind.notes, split {split}, seed {options.seed}"
    if name == "needles":
        rng, count = Random(f"{name}/{split}/{options.seed}"), max(2, _MARGIN * tokens // _NEEDLE_TOKENS)
        words = f"other needles, split {split}, seed {options.seed}"
        return " ".join(needle.sentence for needle in draw(rng, value, keys=count)), words
    path = Path(name)
    if not path.is_file():
        path = find(
            "needles", options, [f"haystack/{name}.txt", f"{name}.txt"], "any plain text (or use haystack=notes)"
        )
    return read_text(path), str(path)


def _notes(tokens: int, options: TaskOptions, split: Split) -> str:
    made: list[str] = []
    count = 0
    while count < _MARGIN * tokens:
        sample = make_sample(options.seed * SEEDS + len(made), split=split)
        text = "\n\n".join(note.text for note in sample.notes)
        made.append(text)
        count += len(options.encode(text))
    return "\n\n".join(made)
