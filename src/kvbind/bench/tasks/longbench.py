"""LongBench's six question-answering tasks: its templates, truncation and chat rule, documents cut as in PIC papers."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from kvbind.bench import chunking
from kvbind.bench.chunking import Span
from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.tasks.options import TaskOptions
from kvbind.bench.tasks.prompts import LONGBENCH, PAGES, around, closing, document, page_prompt
from kvbind.bench.tasks.records import Record, choose, find, read_records
from kvbind.errors import BenchError

ROOM = 500
"""LongBench's prompts are so many tokens shorter than the window: room for the chat template and the answer."""

_HUB = "hf://datasets/THUDM/LongBench/data.zip"
_MAX_TOKENS = {"narrativeqa": 128, "multifieldqa_en": 64}
_MAX_TOKENS_ELSE = 32
_CUTS: Mapping[str, tuple[Callable[[str], list[Span]], str]] = {
    "narrativeqa": (chunking.whole, "the whole text"),
    "multifieldqa_en": (chunking.whole, "the whole text"),
    "triviaqa": (chunking.shots, "one chunk per solved example"),
}
_CUT_ELSE = (chunking.passages, "one chunk per passage, without its number")


def longbench(dataset: str, options: TaskOptions, *, tokens: int = 0) -> Task:
    """One of the six; `tokens`: documents are cut at sentence ends into pieces of so many, 0: not at all."""
    if tokens < 0:
        raise BenchError(f"longbench-{dataset}:tokens={tokens}: give 0 (whole) or the tokens of a piece, like 512")
    if options.window < ROOM + 2:
        raise BenchError(
            f"longbench-{dataset}: a window of {options.window} tokens is too small, {ROOM} of them stay free for the "
            "answer: use a model with a larger one"
        )
    records, source = _records(dataset, options)
    chosen = choose(f"longbench-{dataset}", options, records, source)
    _, words = _CUTS.get(dataset, _CUT_ELSE)
    return Task(
        f"longbench-{dataset}",
        [_example(dataset, record, options, tokens) for record in chosen],
        _MAX_TOKENS.get(dataset, _MAX_TOKENS_ELSE),
        f"{words}, in pieces of at most {tokens} tokens that end with a sentence" if tokens else words,
        f"LongBench {dataset}, {source}",
        chat=dataset != "triviaqa",
        first_line=dataset == "triviaqa",
    )


def _records(dataset: str, options: TaskOptions) -> tuple[list[Record], str]:
    if options.data is None:
        rows = _from_hub(dataset)
        return [Record(f"{_HUB}, record {number}", row) for number, row in enumerate(rows, 1)], _HUB
    names = [f"longbench/{dataset}.jsonl", f"{dataset}.jsonl", "minilongbench/longbench_six.jsonl"]
    path = find(f"longbench-{dataset}", options, names, _HUB)
    own = (None, dataset, f"{dataset}_e")  # a record may leave out its data set; LongBench-E's end in _e
    return [record for record in read_records(path) if record.fields.get("dataset") in own], str(path)


def _from_hub(dataset: str) -> list[dict[str, Any]]:
    try:
        load_dataset = import_module("datasets").load_dataset
    except ImportError as error:
        mend = 'pip install "kvbind[bench]", or give the data\'s file or folder'
        raise BenchError(f"longbench-{dataset}: the package datasets cannot be imported: {mend}") from error
    try:
        # Not by the data set's name: that runs a script, which recent versions refuse.
        return [dict(row) for row in load_dataset("json", data_files=f"zip://data/{dataset}.jsonl::{_HUB}")["train"]]
    except Exception as error:  # the library lets through whatever its parts raise
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise BenchError(f"{_HUB}: cannot be loaded ({why}): give the data's file or folder") from error


def _example(dataset: str, record: Record, options: TaskOptions, tokens: int) -> Example:
    question, context = record.get("input", str), record.get("context", str)
    before, after = around(LONGBENCH[dataset], question)
    kept = chunking.cut_middle(before, context, after, options.window - ROOM, options.encode, options.decode)
    texts = _texts(dataset, context, kept, options, tokens)
    if not texts:
        raise BenchError(f"{record.place}: nothing is left of the context in a window of {options.window} tokens")
    return Example(
        str(record.fields.get("id") or record.fields.get("_id") or record.place),
        tuple(document(f"longbench-{dataset}", text) for text in texts),
        _bare(question) if dataset == "triviaqa" else question,
        Prompt(kept.before, closing(kept.after)),
        page_prompt(PAGES[dataset], question),
        tuple(map(str, record.get("answers", list))),
        facts={
            "words": record.fields.get("length") or len(context.split()),
            "truncated": kept.spans != ((0, len(context)),),
        },
    )


def _texts(dataset: str, context: str, kept: chunking.Kept, options: TaskOptions, tokens: int) -> list[str]:
    cut, _ = _CUTS.get(dataset, _CUT_ELSE)
    texts = [context[low:high].strip() for low, high in chunking.common(cut(context), kept.spans)]
    if tokens:
        texts = [piece for text in texts for piece in chunking.pieces(text, tokens, options.encode)]
    return [text for text in texts if text]


def _bare(block: str) -> str:
    """The question of TriviaQA's last block, which holds its passage too."""
    return block.rpartition("Question:\n")[2].partition("\nAnswer:")[0].strip() or block
