"""kvbind beside other systems: the same model, token ids, questions and thread count, one process for each system.

    python benchmarks/peers/compare.py --model FOLDER --tasks "biographies:notes=5" --n 20 --out runs/peers
    kvbind bench report runs/peers

Every example is asked twice: over its documents in the order in which an earlier request, with another question, showed
them, and in another order. Each system has answered that earlier request, and nothing else.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import torch
from rich.table import Table

from kvbind import Bank, Doc, Engine, Message
from kvbind.answer import Answer
from kvbind.bench.describe import describe
from kvbind.bench.example import Example, Prompt, Task
from kvbind.bench.measure import Trial
from kvbind.bench.records import Journal, read_run
from kvbind.bench.run import Options, run
from kvbind.bench.tables import warm_ttft
from kvbind.bench.tasks import TaskOptions, load_task
from kvbind.cli.terminal import console, plain_table
from kvbind.steps.layout import lay_out
from kvbind.steps.plan import make_plan

HERE = Path(__file__).parent
OTHER_QUESTION = "What is this about?"
HF, KVBOOST = ("hf-full", "hf-prefix"), ("kvboost-full", "kvboost")  # full prefill first
PROMPT = ("head", "reused", "compiled", "fresh")
PLACE = "the system's own cache, in memory"
Record = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A system: its script, the Python that has it, and the methods that the script answers by."""

    script: str
    python: str
    methods: tuple[str, ...]


def in_two_orders(task: Task) -> list[Task]:
    """The task as it is, and with each example's documents in another order; examples of one document have none."""
    moved = [shuffled(example) for example in task.examples if len({one.id for one in example.documents}) > 1]
    other = replace(task, name=f"{task.name}, another order", examples=moved)
    return [task, other] if moved else [task]


def shuffled(example: Example) -> Example:
    order = list(range(len(example.documents)))
    rng = Random(example.id)
    while [example.documents[number] for number in order] == list(example.documents):
        rng.shuffle(order)
    gold = tuple(sorted(order.index(number) for number in example.gold))
    return replace(example, documents=tuple(example.documents[number] for number in order), gold=gold)


def ask_of(engine: Engine, task: Task, example: Example) -> Record:
    """The request as kvbind's own full prefill lays it out: `common.Ask`, as JSON."""
    shown = [Doc(document.id) for document in example.documents]
    parts: list[str | Doc] = [example.text.before, *shown, example.text.after]
    message = Message("user", [part for part in parts if part])
    plan = make_plan(engine.library, [message], engine.method("full"))
    encodings = [engine.library.encode(choice.chunk, choice.representation) for choice in plan.choices]
    chat = engine.backbone.chat
    split = chat.split if task.chat else chat.bare
    layout = lay_out(engine.backbone, split(plan.turns), plan.fill(encodings))
    ids = layout.ids.tolist()
    text = engine.backbone.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return {
        "ids": ids,
        "text": text,
        "before_question": layout.chunks[-1].rows.stop,
        "stops": sorted(engine.backbone.stops),
    }


def requests(engine: Engine, tasks: list[Task]) -> Iterator[Record]:
    originals = {example.id: example for example in tasks[0].examples}
    for task in tasks:
        for example in task.examples:
            for document in example.documents:
                engine.add(document)
            original = originals[example.id]
            earlier = replace(original, text=Prompt(original.text.before, OTHER_QUESTION))
            yield {
                "task": task.name,
                "example": example.id,
                "max_tokens": task.max_tokens,
                "primer": ask_of(engine, task, earlier),
                "ask": ask_of(engine, task, example),
            }


def peers(arguments: argparse.Namespace) -> list[Peer]:
    found = [Peer("prefix.py", sys.executable, HF)]
    if arguments.kvboost_python:
        found.append(Peer("kvboosted.py", arguments.kvboost_python, KVBOOST))
    return found


def ask_peer(peer: Peer, arguments: argparse.Namespace, file: Path) -> list[Record]:
    """Run a system's process; its answers."""
    answers = file.with_name(f"{Path(peer.script).stem}.jsonl")
    given = {
        name: getattr(arguments, name) for name in ("model", "dtype", "device", "threads", "repeats", "chunk_size")
    }
    given |= {"requests": file, "answers": answers}
    words = [str(word) for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    threads = str(arguments.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONWARNINGS": "ignore"}
    environment.pop("PYTHONPATH", None)  # another environment's packages are not this one's
    subprocess.run([peer.python, str(HERE / peer.script), *words], check=True, env=environment)
    return [json.loads(line) for line in answers.read_text("utf-8").splitlines()]


def as_record(engine: Engine, task: Task, example: Example, said: Record) -> Record:
    """An answer of another system in the benchmark's record format."""
    text = engine.backbone.tokenizer.decode(said["ids"], skip_special_tokens=True)
    counts = ("head", "compiled", "recomputed")
    tokens = {**dict.fromkeys(counts, 0), "reused": said["reused"], "fresh": said["prompt"] - said["reused"]}
    tokens["generated"] = len(said["ids"])
    finish = "length" if len(said["ids"]) == task.max_tokens else "stop"
    answers = [
        Answer(text, tuple(said["ids"]), finish, said["method"], ttft, {"read": ttft}, tokens, ())
        for ttft in said["ttft"]
    ]
    trial = Trial(said["method"], engine.method("full"), answer=answers[0], warm=answers, place=PLACE)
    return {**describe(engine, task, example, trial), "own_ttft": said["own_ttft"]}


def facts(peer: Peer) -> list[Record]:
    """What the report knows of a system's methods: nothing is written into a bank, documents are text."""
    shared = {"write": None, "shown": ["text"], "pages": False}
    return [{"spelling": name, "name": name, **shared} for name in peer.methods]


def merge(engine: Engine, tasks: list[Task], out: Path, own: Path, said: dict[Peer, list[Record]]) -> None:
    """kvbind's run and the answers of the others as one run in `out`."""
    ours = read_run(own)
    config = {**ours.config, "methods": [*ours.config["methods"], *(fact for peer in said for fact in facts(peer))]}
    journal = Journal(out, config)
    for cost in ours.costs:
        journal.append_cost(cost)
    others = [record for records in said.values() for record in records]
    for task in tasks:
        for example in task.examples:
            place = task.name, example.id
            mine = [record for record in ours.records if (record["task"], record["example"]) == place]
            theirs = [one for one in others if (one["task"], one["example"]) == place]
            journal.append([*mine, *(as_record(engine, task, example, one) for one in theirs)])


def summary(records: list[Record], said: dict[Peer, list[Record]]) -> Table:
    """Times over those of full prefill in the same process: what the machine did meanwhile is in both."""
    within = {method: peer.methods[0] for peer in said for method in peer.methods}
    found = {(one["task"], one["example"], one["method"]): one for one in records if "error" not in one}
    table = plain_table("task", "method", right=("TTFT over its full prefill's", "reused", "same answer"))
    for task, method in dict.fromkeys((one["task"], one["method"]) for one in records):
        full = within.get(method, "full")
        mine = [one for one in found.values() if (one["task"], one["method"]) == (task, method)]
        pairs = [(one, other) for one in mine if (other := found.get((task, one["example"], full)))]
        if pairs:
            ratio = mean(warm_ttft(one) / warm_ttft(other) for one, other in pairs)
            reused = mean(one["tokens"]["reused"] / sum(other["tokens"][n] for n in PROMPT) for one, other in pairs)
            same = mean(one["ids"] == other["ids"] for one, other in pairs)
            table.add_row(task, method, f"{ratio:.2f}", f"{reused:.0%}", f"{same:.0%}")
    return table


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a text model, or its hub id")
    parser.add_argument("--tasks", required=True, metavar="TASK", help="one task, as `kvbind bench tasks` lists them")
    parser.add_argument("--out", required=True, type=Path, help="a new folder")
    parser.add_argument("--n", type=int, default=20, help="examples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder of the task's data")
    parser.add_argument("--methods", nargs="+", default=["full", "template", "epic:k=16"], help="kvbind's methods")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--kvboost-python", metavar="PATH", help="the Python that has kvboost; without it, left out")
    parser.add_argument("--chunk-size", type=int, default=128, help="kvboost's, in tokens")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(arguments.threads)
    engine = Engine.from_pretrained(arguments.model, device=arguments.device, dtype=arguments.dtype)
    backbone = engine.backbone
    options = TaskOptions(
        data=arguments.data,
        n=arguments.n,
        seed=arguments.seed,
        window=backbone.window,
        encode=backbone.tokens,
        decode=backbone.tokenizer.decode,
    )
    tasks = in_two_orders(load_task(arguments.tasks, options))
    own = arguments.out / "kvbind"
    drawn = Options(tuple(arguments.methods), arguments.n, arguments.seed, arguments.repeats)
    with Bank.open(arguments.out / "bank") as bank:
        run(Engine(backbone, bank, source=arguments.model), tasks, drawn, own)
    file = arguments.out / "requests.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in requests(engine, tasks)), "utf-8")
    said = {peer: ask_peer(peer, arguments, file) for peer in peers(arguments)}
    merge(engine, tasks, arguments.out, own, said)
    console().print(summary(read_run(arguments.out).records, said))
    print(f"kvbind bench report {arguments.out}")


if __name__ == "__main__":
    main()
