"""Tables for `kvbind ask --explain`: where the answer came from, and where the time went."""

from collections.abc import Sequence

from rich.table import Table

from kvbind.answer import Answer, Source
from kvbind.cli.terminal import duration, plain_table
from kvbind.steps.clock import TTFT_STEPS

BAR = 10
STEPS = {
    "plan": "choosing representations, finding keys",
    "fetch": "finding passages in the bank",
    "stitch": "moving passages to their places, and computing the head if need be",
    "select": "finding the reused tokens to compute anew",
    "read": "computing fresh tokens, usually the question's, up to the first answer token",
}
OUTSIDE = {
    "prepare": "drawing and tokenising documents, which is not counted above",
    "decode": "the answer's other tokens",
}
TOKENS = {
    "head": "chat template up to the first document",
    "reused": "passages that were in the bank",
    "compiled": "passages compiled within this request",
    "fresh": "computed for this request alone",
    "recomputed": "of the reused ones, computed anew (averaged over layers)",
    "generated": "the answer",
}


def sources_table(sources: Sequence[Source]) -> Table:
    """One row for each chunk shown, in the order of the prompt."""
    table = plain_table("document", "shown as", right=("chunk", "tokens", "relevance"))
    table.add_column("passage", no_wrap=True)
    table.add_column("attention", no_wrap=True)
    largest = max((source.attention or 0.0 for source in sources), default=0.0)
    for source in sources:
        shown = f"{source.representation}, promoted" if source.promoted else source.representation
        relevance = "" if source.relevance is None else f"{source.relevance:.2f}"
        numbers = (str(source.chunk), f"{source.rows:,}", relevance)
        table.add_row(source.document, shown, *numbers, source.state, _bar(source.attention, largest))
    return table


def _bar(share: float | None, largest: float) -> str:
    if share is None:
        return ""
    filled = round(BAR * share / largest) if largest > 0 else 0
    return f"{share:6.1%} {'█' * filled}"


def costs_table(answer: Answer) -> Table:
    """Seconds of each step up to the first token, and tokens by where they came from."""
    table = plain_table("time to first token", right=(duration(answer.ttft),))
    table.add_column("")
    for name in TTFT_STEPS:
        note = STEPS[name]
        if name == "fetch" and answer.tokens["compiled"]:
            note = "reading passages, and compiling those that were missing"
        if name in answer.seconds:
            table.add_row(f"  {name}", duration(answer.seconds[name]), note)
    for name, note in OUTSIDE.items():
        if name in answer.seconds:
            table.add_row(name, duration(answer.seconds[name]), note)
    _loading_row(table, answer)
    total = sum(count for name, count in answer.tokens.items() if name != "recomputed")
    table.add_row("tokens", f"{total:,}", "", style="bold")
    for name, note in TOKENS.items():
        if answer.tokens[name] or name != "recomputed":
            table.add_row(f"  {name}", f"{answer.tokens[name]:,}", note)
    return table


def _loading_row(table: Table, answer: Answer) -> None:
    """What was read from the bank while the model computed, and how much of that the model had to wait for."""
    loading = answer.loading
    if loading.bytes:
        waited = f"{loading.bytes / 1e6:,.1f} MB beside the computation, which waited {duration(loading.waited)} for it"
        table.add_row("loading", duration(loading.seconds), waited)
