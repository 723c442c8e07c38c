"""A report before it is written: for each group of runs its conditions, tables and figures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from kvbind.bench.cells import NOISE, Table, places_table, table
from kvbind.bench.figures import Tables, figures, tables_of
from kvbind.bench.groups import Group, comparable
from kvbind.bench.panels import Figure
from kvbind.bench.records import Record
from kvbind.bench.statistics import FEWEST, RESAMPLES

TITLE = "kvbind benchmark"
NOTES = (
    "F1 is LongBench's, the mean over a task's examples × 100, averaged over tasks with equal weight. micro-F1 is the "
    "corpus F1 of summed token counts × 100. The two must not be compared with each other.",
    f"Brackets hold 95 % bootstrap intervals: {RESAMPLES:,} resamples of the examples, within tasks. Differences are "
    f"paired, example by example. One is {NOISE} from noise if its interval holds no difference, or if it rests on "
    f"fewer than {FEWEST} examples of a task, or that differ. All numbers are over the examples that every method "
    "answered.",
    "TTFT is the time to first token of a hit, its passages in memory (warm, the mean of an example's repeats) or on "
    "the disk alone (cold). TTFT to full prefill is the mean over examples of the ratio to full prefill of the same "
    "representation, asked in the same rounds of the same run. Neither splitting full prefill's documents into tokens "
    "nor drawing its pages is counted.",
    "Compile seconds were measured one document at a time, from its text to the stored records; page breaks, and "
    "vectors for retrieval, which methods share, are not counted. Break-even is the compile seconds of a request's "
    "documents over the seconds that a request saves against full prefill.",
)


@dataclass(frozen=True)
class Section:
    """What a report says of one group."""

    title: str
    conditions: str
    facts: Sequence[str]
    tables: Sequence[Table]
    figures: Sequence[Figure]
    numbers: Tables


def section(group: Group) -> Section:
    """Compute everything that a report says of a group."""
    alike, config = comparable(group), group.config
    numbers = tables_of(alike)
    drawn = figures(alike, numbers)
    places = [places_table(panel) for one in drawn if one.name == "positions" for panel in one.panels]
    tables = [*(table(title, rows) for title, rows in numbers.items()), *places]
    facts = [*_conditions(group), *_tasks(group), *_storage(group), *_errors(group), *_left_out(group, alike)]
    return Section(config["model"], conditions(config), facts, tables, drawn, numbers)


def conditions(config: Record) -> str:
    """What the numbers were computed by."""
    versions = ", ".join(f"{name} {number}" for name, number in config["versions"].items())
    return f"{config['device']}, {config['threads']} thread(s), {config['dtype']}; {versions}"


def _conditions(group: Group) -> Iterable[str]:
    config = group.config
    yield conditions(config)
    yield f"embedder {config['embedder']}; bank in {config['bank']}; {config['repeats']} warm repeats"
    if any(facts["pages"] for facts in group.methods.values()):
        yield "pages: " + ", ".join(f"{name} {value}" for name, value in config["page"].items() if name != "dpi")


def _tasks(group: Group) -> Iterable[str]:
    for name, task in group.tasks.items():
        chat = "with the chat template" if task["chat"] else "without the chat template"
        yield (
            f"{name}: {task['examples']} examples of {task['source']}; documents: {task['chunking']}; at most "
            f"{task['max_tokens']} tokens, {chat}; micro-F1 of {task['micro']}"
        )
        yield from _cut(group, name)


def _cut(group: Group, task: str) -> Iterable[str]:
    """Contexts that were cut to the model's window, and answers that ended at the limit."""
    records = {method: group.answered(task, method).values() for method in group.methods}
    facts = {record["example"]: record["facts"] for record in chain.from_iterable(records.values())}
    cut = sum(bool(found.get("truncated")) for found in facts.values())
    if cut:
        yield f"{task}: the middle of {cut} of {len(facts)} contexts was cut out, as LongBench does, to fit the model"
    ended = {method: sum(record["finish"] == "length" for record in found) for method, found in records.items()}
    if any(ended.values()):
        counts = ", ".join(f"{count} of {method}" for method, count in ended.items() if count)
        yield f"{task}: answers that ended at the limit of tokens: {counts}"


def _storage(group: Group) -> Iterable[str]:
    """How cold and warm were reached, and what no number exists of."""
    records = [record for measured in group.records.values() for record in measured.values() if record["cold"]]
    for how, count in Counter(record["cold"] for record in records).items():
        measured = sum(record["ttft"]["cold"] is not None for record in records if record["cold"] == how)
        yield f"{'cold' if measured else 'not measured cold'} ({count} records): {how}"
    for place, count in Counter(record["warm"] for record in records).items():
        yield f"warm ({count} records): passages in {place}"
    unknown = sum(cost["seconds"] is None for cost in group.costs.values())
    if unknown:
        yield f"{unknown} of {len(group.costs)} compiles were not timed: the bank held their records before the run"


def _errors(group: Group) -> Iterable[str]:
    for (task, method), failed in group.errors.items():
        reasons = Counter(record["error"].partition(":")[0] for record in failed.values())
        why = ", ".join(f"{count} × {reason}" for reason, count in reasons.items())
        first = next(iter(failed.values()))["error"]
        yield f"failed: {method} on {len(failed)} examples of {task} ({why}), the first: {first}"


def _left_out(group: Group, alike: Group) -> Iterable[str]:
    for task in group.tasks:
        asked = {example for method in group.methods for example in group.answered(task, method)}
        kept = {example for method in group.methods for example in alike.answered(task, method)}
        if kept < asked:
            left = len(asked) - len(kept)
            yield f"{task}: {left} of {len(asked)} examples are in no number, since not all methods answered"
