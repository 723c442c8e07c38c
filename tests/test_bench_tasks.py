"""The benchmark's tasks: prompts, truncation, chunks, gold places, seeds, and what bad data says."""

import gzip
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from kvbind.bench import chunking
from kvbind.bench.example import Example, Task
from kvbind.bench.needles import Needle, ask, draw, plant
from kvbind.bench.tasks import TaskOptions, load_task, task_names
from kvbind.errors import BenchError
from kvbind.notes.words import side
from kvbind.scores import micro_counts

DATA = Path(os.environ.get("KVBIND_DATA", Path(__file__).parents[2] / "shared" / "data"))
NO_DATA = "the evaluation data is not here: set KVBIND_DATA to its folder"
ONLY = "Only give me the answer and do not output any other words."
GIVEN = f"Answer the question based on the given passages. {ONLY}"


def encode(text: str) -> list[int]:
    """One token a byte."""
    return list(text.encode())


def decode(ids: list[int]) -> str:
    return bytes(ids).decode(errors="replace")


def words(text: str) -> list[int]:
    """One token a word."""
    return [len(word) for word in text.split()]


def options(data: Path | None = None, n: int | None = None, **more: Any) -> TaskOptions:
    return TaskOptions(**{"data": data, "n": n, "encode": encode, "decode": decode, "window": 10**6, **more})


def load(spelling: str, data: Path | None = None, n: int | None = None, **more: Any) -> Task:
    return load_task(spelling, options(data, n, **more))


def one(spelling: str, data: Path | None = None, **more: Any) -> Example:
    [example] = load(spelling, data, **more).examples
    return example


def write(path: Path, *records: Any) -> Path:
    text = json.dumps(records[0]) if path.suffix == ".json" else "".join(json.dumps(line) + "\n" for line in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def texts(example: Example) -> list[str]:
    return [document.text for document in example.documents]


def failure(call: Callable[[], object]) -> str:
    with pytest.raises(BenchError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Records in the formats of their makers.

PASSAGES = "Passage 1:\nAlpha\nFirst passage.\nPassage 2:\nBeta\nSecond\n\nPassage 3:\nGamma\nLast one.\n"
SHOTS = "Passage:\nOne\nQuestion:\nWho?\nAnswer:\nRuth\nPassage:\nTwo\nQuestion:\nWhere?\nAnswer:\nOslo"
ASKED = "Passage:\nThree\nQuestion:\nWhen did it end?\nAnswer:\n"


def longbench(dataset: str, context: str = PASSAGES, question: str = "Who won?", **more: Any) -> dict[str, Any]:
    record = {"input": question, "context": context, "answers": ["Ruth"], "length": 9, "dataset": dataset}
    return {**record, "language": "en", "all_classes": None, "_id": f"{dataset}-x", **more}


def hotpotqa(number: int) -> dict[str, Any]:
    context = [[f"Title {at}", [f"Text {number}.{at}.", " More."]] for at in range(10)]
    facts = [["Title 2", 0], ["Title 7", 1], ["Title 2", 1]]
    base = {"_id": f"h{number}", "question": f"Who is {number}?", "answer": "Ruth", "type": "bridge", "level": "hard"}
    return {**base, "supporting_facts": facts, "context": context}


def musique(number: int, answerable: bool = True) -> dict[str, Any]:
    paragraphs = [
        {"idx": at, "title": f"T{at}", "paragraph_text": f"P {number}.{at}", "is_supporting": at in (1, 5, 6)}
        for at in range(20)
    ]
    base = {"id": f"3hop1__{number}", "question": "Which?", "answer": "G. Hall", "answer_aliases": ["Hall"]}
    return {**base, "paragraphs": paragraphs, "answerable": answerable}


def cacheblend(number: int) -> dict[str, Any]:
    chunks = [{"title": "", "text": f"chunk {number}.{at} "} for at in range(10)]
    return {"question": f"Where is {number}?", "answers": ["Exeter"], "ctxs": chunks}


def xquad(articles: int = 4) -> dict[str, Any]:
    def paragraph(article: int, at: int) -> dict[str, Any]:
        answers = [{"text": "Ruth", "answer_start": 0}, {"text": "Ruth", "answer_start": 9}]
        asked = [{"id": f"q{article}.{at}", "question": f"Who is {article}.{at}?", "answers": answers}]
        return {"context": f"Ruth is {article}.{at}. ", "qas": asked}

    made = [{"title": f"A{at}", "paragraphs": [paragraph(at, number) for number in range(5)]} for at in range(articles)]
    return {"version": "1.1", "data": made}


def nq_open(number: int) -> dict[str, Any]:
    passage = {"title": f"T{number}", "text": f"It was {number % 7} times.", "hasanswer": True, "isgold": True}
    return {"question": f"how often {number}", "answers": [f"{number % 7} times"], "ctxs": [passage]}


def pairs(number: int) -> dict[str, Any]:
    held = [[f"k{number}.{at}", f"v{number}.{at}"] for at in range(75)]
    return {"ordered_kv_records": held, "key": held[9][0], "value": held[9][1]}


FILES: dict[str, tuple[str, list[Any]]] = {
    "longbench-hotpotqa": ("hotpotqa.jsonl", [longbench("hotpotqa", _id=f"l{number}") for number in range(20)]),
    "longbench-narrativeqa:tokens=20": (
        "narrativeqa.jsonl",
        [longbench("narrativeqa", f"It was {number}. So it went. " * 9, _id=f"l{number}") for number in range(20)],
    ),
    "hotpotqa:paragraphs=5": ("hotpotqa.json", [[hotpotqa(number) for number in range(20)]]),
    "musique:paragraphs=5": ("musique.jsonl", [musique(number) for number in range(20)]),
    "cacheblend-musique": ("musique_s.json", [[cacheblend(number) for number in range(20)]]),
    "xquad:language=de": ("xquad.de.json", [xquad()]),
    "nq-open:passages=4": ("nq-open-oracle.jsonl.gz", [nq_open(number) for number in range(20)]),
    "kv-retrieval:pairs=20,chunks=4": ("kv-retrieval-75_keys.jsonl.gz", [pairs(number) for number in range(20)]),
}
MADE = (
    "biographies",
    "biographies:notes=3,kind=any,instruct=on",
    "needles:haystack=notes,tokens=600,chunk=200",
    "needles:haystack=needles,tokens=600,chunk=200,keys=3,value=uuid",
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with a little data for every task."""
    for name, records in FILES.values():
        write(tmp_path / name, *records)
    return tmp_path


# Prompts.

STORY = "You are given a story, which can be either a novel or a movie script, and a question. Answer the question"
CONCISELY = "asconcisely as you can, using a single phrase if possible. Do not provide any explanation."
NOW = "Now, answer the following question based on the above text, only give me the answer and do not output any other"
STORY_ASKED = f"Now, answer the question based on the story {CONCISELY}\n\nQuestion: Who won?\n\nAnswer:"
MULTI = (
    f"{GIVEN}\n\nThe following are given passages.\n{{}}\n\n{GIVEN}\n\nQuestion: Who won?\nAnswer:",
    f"{GIVEN}\n\nQuestion: Who won?\nAnswer:",
    32,
)
TEMPLATES = {
    "hotpotqa": MULTI,
    "2wikimqa": MULTI,
    "musique": MULTI,
    "narrativeqa": (
        f"{STORY} {CONCISELY}\n\nStory: {{}}\n\n{STORY_ASKED}",
        f"{STORY} {CONCISELY}\n\nStory is shown in the images.\n\n{STORY_ASKED}",
        128,
    ),
    "multifieldqa_en": (
        f"Read the following text and answer briefly.\n\n{{}}\n\n{NOW} words.\n\nQuestion: Who won?\nAnswer:",
        f"Read the text and answer in the images briefly.\n\n{NOW} words.\n\nQuestion: Who won?\nAnswer:",
        64,
    ),
    "triviaqa": (
        f"Answer the question based on the given passage. {ONLY} The following are some examples.\n\n{{}}\n\nWho won?",
        f"Answer the question based on the given passage. {ONLY} Some examples are shown in the images.\n\nWho won?",
        32,
    ),
}


@pytest.mark.parametrize("dataset", TEMPLATES)
def test_longbench_prompts_letter_by_letter(tmp_path: Path, dataset: str) -> None:
    filled, pages, max_tokens = TEMPLATES[dataset]
    path = write(tmp_path / "x.jsonl", longbench(dataset, "{CONTEXT} {input}"))
    task = load(f"longbench-{dataset}", path)
    [example] = task.examples
    ending = "\n\n"  # of the last document's chunk
    assert example.text.before + texts(example)[0] + ending + example.text.after == filled.replace(
        "{}", "{CONTEXT} {input}"
    )
    assert example.pages.before + "IMAGES" + example.pages.after == f"IMAGES{pages}"
    assert task.max_tokens == max_tokens
    assert (task.chat, task.first_line) == ((False, True) if dataset == "triviaqa" else (True, False))
    assert (example.query, example.answers, example.gold) == ("Who won?", ("Ruth",), ())
    assert (example.id, dict(example.facts)) == (f"{dataset}-x", {"words": 9, "truncated": False})


def test_braces_in_a_question_stay(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", longbench("hotpotqa", question="What is {context} in {input}?"))
    assert "Question: What is {context} in {input}?\nAnswer:" in one("longbench-hotpotqa", path).text.after


def test_passages_lose_their_numbers(tmp_path: Path) -> None:
    example = one("longbench-musique", write(tmp_path / "x.jsonl", longbench("musique")))
    assert texts(example) == ["Alpha\nFirst passage.", "Beta\nSecond", "Gamma\nLast one."]
    assert "without its number" in load("longbench-musique", tmp_path / "x.jsonl").chunking


def test_triviaqa_shows_solved_examples_and_asks_about_the_last_block(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", longbench("triviaqa", SHOTS, ASKED))
    example = one("longbench-triviaqa", path)
    assert texts(example) == [SHOTS[: SHOTS.index("\nPassage:")], SHOTS[SHOTS.index("Passage:\nTwo") :]]
    assert example.text.after == ASKED
    assert example.query == "When did it end?"


def test_long_texts_come_in_pieces(tmp_path: Path) -> None:
    context = "One two three. Four five! Six seven eight nine? Ten. " * 3
    path = write(tmp_path / "x.jsonl", longbench("multifieldqa_en", context))
    example = one("longbench-multifieldqa_en:tokens=6", path, encode=words)
    assert texts(example) == ["One two three. Four five!", "Six seven eight nine? Ten."] * 3
    assert texts(one("longbench-multifieldqa_en:tokens=0", path)) == [context.strip()]
    assert texts(one("longbench-multifieldqa_en", path, encode=words)) == [context.strip()]  # 512 by default


# Truncation.


def longbench_truncation(prompt: str, limit: int) -> str:
    ids = encode(prompt)
    if len(ids) <= limit:
        return prompt
    half = int(limit / 2)
    return decode(ids[:half]).rstrip("\ufffd") + decode(ids[-half:]).lstrip("\ufffd")


@pytest.mark.parametrize("parts", [("BEFORE", "the context", "AFTER"), ("Größe", "大小 🎉", "né"), ("", "abc", "")])
def test_what_is_kept_is_longbenchs_prompt(parts: tuple[str, str, str]) -> None:
    prompt = "".join(parts)
    for limit in range(2, len(encode(prompt)) + 3):
        kept = chunking.cut_middle(*parts, limit, encode, decode)
        context = "".join(parts[1][slice(*span)] for span in kept.spans)
        assert kept.before + context + kept.after == longbench_truncation(prompt, limit)
        assert parts[0].startswith(kept.before)
        assert parts[2].endswith(kept.after)


def test_documents_come_from_what_truncation_leaves(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", longbench("hotpotqa"))
    filled = MULTI[0].replace("{}", PASSAGES)
    marked = re.sub(r"Passage \d:\n", "#" * len("Passage 1:\n"), filled)
    start, end = filled.index("Passage 1"), filled.rindex("\n\nAnswer the")
    for short in range(1, len(filled) - 2 * max(start, len(filled) - end) - 1):
        example = one("longbench-hotpotqa", path, window=500 + len(filled) - short)
        kept = longbench_truncation(marked, len(filled) - short)[start : end - len(filled)]
        assert "".join("".join(texts(example)).split()) == "".join(kept.replace("#", "").split())
        assert (example.facts["truncated"], example.pages.after) == (True, MULTI[1])
    assert not one("longbench-hotpotqa", path, window=500 + len(filled)).facts["truncated"]


def test_a_header_cut_in_two_leaves_no_rest() -> None:
    spans = chunking.passages(PASSAGES)
    cut = PASSAGES.index("Passage 2") + 4
    kept = ((0, cut), (cut + 3, len(PASSAGES)))
    found = [PASSAGES[low:high].strip() for low, high in chunking.common(spans, kept)]
    assert found == ["Alpha\nFirst passage.", "Beta\nSecond", "Gamma\nLast one."]


@pytest.mark.parametrize(("window", "problem"), [(501, "too small"), (520, "nothing is left of the context")])
def test_windows_without_room_are_refused(tmp_path: Path, window: int, problem: str) -> None:
    path = write(tmp_path / "x.jsonl", longbench("hotpotqa"))
    assert problem in failure(lambda: load("longbench-hotpotqa", path, window=window))


# Pieces.

PROSE = 'Mr. Holmes met J. Watson, M.D., at No. 4. "Is it 3.5 miles?" he said. No! It is not.\n\nA verse\nwithout end'


def test_sentences_join_to_the_text() -> None:
    assert "".join(chunking.sentences(PROSE)) == PROSE
    assert [sentence.strip() for sentence in chunking.sentences(PROSE)] == [
        "Mr. Holmes met J. Watson, M.D., at No.",
        "4.",
        '"Is it 3.5 miles?" he said.',
        "No!",
        "It is not.",
        "A verse\nwithout end",
    ]
    assert chunking.sentences("大学。“对！”好？") == ["大学。", "“对！”", "好？"]
    assert chunking.sentences("") == []


@pytest.mark.parametrize("tokens", [1, 2, 3, 7, 20, 1000])
def test_pieces_lose_nothing_and_keep_the_limit(tokens: int) -> None:
    text = PROSE * 4 + " verylongword" * 30
    for counted in (words, encode):
        made = chunking.pieces(text, tokens, counted)
        assert "".join("".join(made).split()) == "".join(text.split())
        assert all(len(counted(piece)) <= tokens for piece in made)


def test_a_long_sentence_is_cut_between_lines_and_then_words() -> None:
    assert chunking.pieces("one two\nthree four\nfive six", 4, words) == ["one two\nthree four", "five six"]
    assert chunking.pieces("one two three four five", 2, words) == ["one two", "three four", "five"]
    assert chunking.pieces("abcdefgh", 3, encode) == ["ab", "cd", "ef", "gh"]


# Where LongBench comes from.


def test_longbench_from_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []

    def load_dataset(kind: str, data_files: str) -> dict[str, list[dict[str, Any]]]:
        calls.append((kind, data_files))
        return {"train": [longbench("2wikimqa")]}

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    task = load("longbench-2wikimqa")
    assert task.examples[0].id == "2wikimqa-x"
    assert calls == [("json", "zip://data/2wikimqa.jsonl::hf://datasets/THUDM/LongBench/data.zip")]
    assert "hf://datasets/THUDM/LongBench" in task.source


def test_a_hub_out_of_reach_and_a_missing_package_are_one_line_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("no route\nto host")

    module = ModuleType("datasets")
    module.load_dataset = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert "cannot be loaded (no route): give the data's file" in failure(lambda: load("longbench-musique"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert 'pip install "kvbind[bench]"' in failure(lambda: load("longbench-musique"))


def test_a_file_of_several_sets_gives_the_task_its_own(tmp_path: Path) -> None:
    (tmp_path / "minilongbench").mkdir()
    records = [{**longbench(name), "id": f"{name}-7", "passage_starts": None} for name in ("musique", "hotpotqa")]
    path = write(tmp_path / "minilongbench" / "longbench_six.jsonl", *records, longbench("hotpotqa_e"))
    assert [example.id for example in load("longbench-musique", tmp_path).examples] == ["musique-7"]
    assert {example.id for example in load("longbench-hotpotqa", path).examples} == {"hotpotqa-7", "hotpotqa_e-x"}
    assert "has 0 examples of longbench-triviaqa" in failure(lambda: load("longbench-triviaqa", path))


# Every task.


@pytest.mark.parametrize("spelling", [*FILES, *MADE])
def test_seeds_and_counts(spelling: str, data: Path) -> None:
    def made(n: int, seed: int = 0) -> list[Example]:
        return list(load(spelling, data, n, seed=seed).examples)

    assert made(10) == made(20)[:10] == made(10)
    assert len({example.id for example in made(20)}) == 20
    assert made(10) != made(10, seed=1)


@pytest.mark.parametrize("spelling", [*FILES, *MADE])
def test_what_every_task_says_of_itself(spelling: str, data: Path) -> None:
    task = load(spelling, data, 5)
    assert task.name == spelling
    assert task.source
    assert "one chunk per page" in task.chunking
    for example in task.examples:
        assert example.documents
        assert example.answers
        assert example.query in example.text.after + example.pages.after
        assert all(place in range(len(example.documents)) for place in example.gold)
        name = spelling.partition(":")[0]
        for document in example.documents:
            assert document.id == f"{name}/{document.digest[:16]}"
            assert document.text == document.text.strip() != ""


def test_names_are_the_tables() -> None:
    assert set(task_names()) == {spelling.partition(":")[0] for spelling in (*FILES, *MADE)} | {
        f"longbench-{dataset}" for dataset in TEMPLATES
    }
    assert all(line and "\n" not in line for line in task_names().values())


SPELLINGS = [
    ("hotpot", "unknown task 'hotpot'; known are longbench-2wikimqa"),
    ("hotpotqa:chunks=5", "hotpotqa takes no parameter 'chunks'; it takes paragraphs, steps"),
    ("hotpotqa:paragraphs=five", "hotpotqa:paragraphs=five: expected int, like 0"),
    ("hotpotqa:paragraphs=1,paragraphs=2", "paragraphs is given twice"),
    ("hotpotqa:paragraphs=-1", "give a number of paragraphs"),
    ("hotpotqa:steps=maybe", "expected on or off"),
    ("longbench-hotpotqa:dataset=musique", "takes no parameter 'dataset'; it takes tokens"),
    ("longbench-hotpotqa:tokens=-1", "give 0"),
    ("cacheblend-musique:chunks=0", "ask for one or more"),
    ("xquad:language=../en", "two letters"),
    ("nq-open:passages=0", "ask for one or more"),
    ("nq-open:passages=400", "passages can stand beside the gold one: ask for fewer"),
    ("kv-retrieval:pairs=4,chunks=5", "a pair or more for each"),
    ("kv-retrieval:pairs=76", "has 75 pairs, 76 are asked for"),
    ("biographies:kind=poem", "choose biography, product, incident or any"),
    ("biographies:notes=0", "ask for one or more"),
    ("needles:value=color", "choose number, word, uuid"),
    ("needles:haystack=notes,keys=0", "keys, values and queries are 1 or more"),
    ("needles:haystack=notes,depth=101", "a depth is 100 at most"),
    ("needles:haystack=notes,tokens=100,chunk=200", "a chunk no longer than the tokens"),
    ("needles:haystack=notes,keys=9000", "ask for fewer needles"),
    ("needles:haystack=nowhere", "looked for haystack/nowhere.txt, nowhere.txt"),
]


@pytest.mark.parametrize(("spelling", "problem"), SPELLINGS)
def test_bad_spellings(spelling: str, problem: str, data: Path) -> None:
    assert problem in failure(lambda: load(spelling, data))


@pytest.mark.parametrize("spelling", FILES)
def test_missing_data_says_where_it_comes_from(spelling: str, tmp_path: Path) -> None:
    message = failure(lambda: load(spelling, tmp_path))
    assert FILES[spelling][0] in message
    assert str(tmp_path) in message
    assert re.search(r"get it from (https|hf)://", message)
    assert "not found" in failure(lambda: load(spelling, tmp_path / "nowhere"))
    if not spelling.startswith("longbench"):
        assert "needs data: get it from https://" in failure(lambda: load(spelling))


@pytest.mark.parametrize("spelling", FILES)
def test_too_few_examples_are_counted(spelling: str, data: Path) -> None:
    assert "has 20 examples of" in failure(lambda: load(spelling, data, 21))
    assert "n=0: ask for one" in failure(lambda: load(spelling, data, 0))


@pytest.mark.parametrize("spelling", [spelling for spelling in FILES if not FILES[spelling][0].endswith(".json")])
def test_a_broken_line_is_named(spelling: str, data: Path) -> None:
    path = data / FILES[spelling][0]
    packed = path.suffix == ".gz"
    content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    for line, problem in ((b'{"text": ', "broken JSON"), (b"7", "7 is not a JSON object"), (b"[" * 10**5, "unusable")):
        broken = content + b"\n" + line + b"\n"
        path.write_bytes(gzip.compress(broken) if packed else broken)
        assert f"{path}:22: {problem}" in failure(lambda: load(spelling, data))


def test_other_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "hotpotqa.json"
    path.write_text('[{"a": 1},\n {"b" 2}]')
    assert f"{path}:2: broken JSON" in failure(lambda: load("hotpotqa", path))
    write(path, [hotpotqa(1) | {"question": None}])
    assert f'{path}: record 1: "question" is null: expected a string' in failure(lambda: load("hotpotqa", path))
    write(path, [{"_id": "x", "question": "?"}])
    assert '"supporting_facts" is missing: expected a list' in failure(lambda: load("hotpotqa", path))
    write(path, [hotpotqa(1) | {"context": {"title": [], "sentences": []}}])
    assert '"context" is {"title"' in failure(lambda: load("hotpotqa", path))
    write(path, [hotpotqa(1) | {"supporting_facts": ["Title 2"]}])
    assert "not HotpotQA's own format" in failure(lambda: load("hotpotqa", path))
    write(path, [])
    assert "has 0 examples of hotpotqa" in failure(lambda: load("hotpotqa", path))
    path.write_bytes(b"\xff[]")
    assert "not UTF-8 text (from byte 0)" in failure(lambda: load("hotpotqa", path))
    packed = tmp_path / "x.jsonl.gz"
    for content in (b"plain", gzip.compress(b"{}")[:-4], gzip.compress(b"{}" * 99)[:12] + b"\xff" * 20):
        packed.write_bytes(content)
        assert f"{packed}: cannot be unpacked" in failure(lambda: load("nq-open", packed))


# Multi-hop.


@pytest.mark.parametrize(("spelling", "gold"), [("hotpotqa", 2), ("musique", 3)])
@pytest.mark.parametrize("count", [1, 3, 5, 99])
def test_gold_paragraphs_stay_and_others_are_drawn(spelling: str, gold: int, count: int, data: Path) -> None:
    orders = set()
    everything = {example.id: example for example in load(spelling, data).examples}
    for example in load(f"{spelling}:paragraphs={count}", data).examples:
        whole = everything[example.id]
        assert len(example.documents) == max(gold, min(count, len(whole.documents)))
        assert {texts(example)[place] for place in example.gold} == {texts(whole)[place] for place in whole.gold}
        assert len(set(texts(example))) == len(example.documents)
        assert set(texts(example)) <= set(texts(whole))
        orders.add(example.gold)
    assert len(orders) > 1 or count <= gold


def test_own_formats(data: Path) -> None:
    example = next(example for example in load("hotpotqa", data).examples if example.id == "h3")
    assert texts(example)[2] == "Title 2\nText 3.2. More."
    assert (example.gold, example.answers) == ((2, 7), ("Ruth",))
    assert dict(example.facts) == {"type": "bridge", "level": "hard"}
    example = next(example for example in load("musique", data).examples if example.id == "3hop1__3")
    assert texts(example)[5] == "T5\nP 3.5"
    assert (example.gold, example.answers, dict(example.facts)) == ((1, 5, 6), ("G. Hall", "Hall"), {"hops": 3})
    example = next(example for example in load("cacheblend-musique", data).examples if example.query == "Where is 3?")
    assert texts(example) == [f"chunk 3.{at}" for at in range(10)]
    assert len(load("cacheblend-musique:chunks=4", data).examples[0].documents) == 4


def test_musique_leaves_out_what_cannot_be_answered(tmp_path: Path) -> None:
    path = write(tmp_path / "musique_full.jsonl", musique(0), musique(1, answerable=False), musique(2))
    assert {example.id for example in load("musique", path).examples} == {"3hop1__0", "3hop1__2"}
    listed = write(tmp_path / "musique.json", [musique(0), musique(2)])
    assert {example.id for example in load("musique", listed).examples} == {"3hop1__0", "3hop1__2"}


@pytest.mark.parametrize(("spelling", "max_tokens"), [("hotpotqa", 512), ("musique", 256)])
def test_steps_ask_for_reasoning_first(spelling: str, max_tokens: int, data: Path) -> None:
    plain, steps = load(spelling, data), load(f"{spelling}:steps=on", data)
    assert (plain.max_tokens, plain.micro) == (32, "whole")
    assert (steps.max_tokens, steps.micro) == (max_tokens, "answer")
    assert steps.examples[0].documents == plain.examples[0].documents
    assert "step by step" in steps.examples[0].text.after
    assert "step by step" not in plain.examples[0].text.after


# Reading.


def test_xquad_shows_the_article(data: Path) -> None:
    task = load("xquad:language=de", data)
    assert len(task.examples) == 20
    for example in task.examples:
        article, place = example.id.removeprefix("q").split(".")
        assert texts(example) == [f"Ruth is {article}.{at}." for at in range(5)]
        assert example.gold == (int(place),)
        assert example.answers == ("Ruth",)
        assert dict(example.facts) == {"language": "de", "article": f"A{article}"}


def test_languages_are_asked_in_the_same_order(tmp_path: Path) -> None:
    for language in ("de", "zh"):
        write(tmp_path / f"xquad.{language}.json", xquad())
    german, chinese = (load(f"xquad:language={language}", tmp_path, 7).examples for language in ("de", "zh"))
    assert [example.id for example in german] == [example.id for example in chinese]


def test_nq_distractors_hold_no_answer(data: Path) -> None:
    golds = set()
    for example in load("nq-open:passages=4", data).examples:
        [gold] = example.gold
        golds.add(gold)
        assert len(set(texts(example))) == 4
        assert [place for place, text in enumerate(texts(example)) if example.answers[0] in text] == [gold]
        assert texts(example)[gold].startswith("T")
    assert golds == {0, 1, 2, 3}


def test_key_values_are_cut_into_objects(data: Path) -> None:
    golds = set()
    for example in load("kv-retrieval:pairs=20,chunks=4", data).examples:
        objects = [json.loads(text) for text in texts(example)]
        assert [len(held) for held in objects] == [5, 5, 5, 5]
        [gold] = example.gold
        golds.add(gold)
        assert objects[gold][example.query] == example.answers[0]
        assert sum(example.query in held for held in objects) == 1
        assert example.facts["pair"] // 5 == gold
    assert len(golds) > 1
    uneven = load("kv-retrieval:pairs=75,chunks=10", data, 1).examples[0]
    assert sorted(len(json.loads(text)) for text in texts(uneven)) == [7] * 5 + [8] * 5


# Made by a seed.


@pytest.mark.parametrize("spelling", ["biographies:notes=4", "biographies:notes=4,kind=any"])
def test_biographies_hold_the_answer_once(spelling: str) -> None:
    task = load(spelling)
    assert len(task.examples) == 100
    for example in task.examples:
        assert [place for place, text in enumerate(texts(example)) if example.answers[0] in text] == list(example.gold)
    assert {example.gold for example in task.examples} == {(0,), (1,), (2,), (3,)}
    assert {side(example.answers[0]) for example in task.examples} == {"eval"}
    kinds = {example.facts["kind"] for example in task.examples}
    assert kinds == ({"biography"} if "any" not in spelling else {"biography", "product", "incident"})
    assert task.micro == ("whole" if "any" in spelling else "biography")


def test_biographies_ask_plainly_or_for_the_answer_alone() -> None:
    plain, asked = (load(f"biographies{more}", n=1).examples[0] for more in ("", ":instruct=on"))
    assert plain.text.after == plain.query
    assert asked.text.after == f"{ONLY}\n\nQuestion: {plain.query}\nAnswer:"
    assert plain.documents == asked.documents


VARIANTS = {
    "": 1,
    "keys=4": 1,
    "values=4": 4,
    "queries=3": 3,
    "keys=5,values=2,queries=2,value=word": 4,
    "value=uuid,haystack=needles": 1,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_needles_hold_every_value_once(variant: str) -> None:
    task = load(
        f"needles:tokens=900,chunk=300,{variant if 'haystack' in variant else f'haystack=notes,{variant}'}", n=8
    )
    for example in task.examples:
        text = "\n".join(texts(example))
        values = example.answers[0].split()
        assert len(values) == len(set(values)) == VARIANTS[variant] == len(example.facts["depths"])
        assert all(text.count(value) == 1 for value in values)
        holding = {place for place, chunk in enumerate(texts(example)) for value in values if value in chunk}
        assert tuple(sorted(holding)) == example.gold
        assert example.query in example.text.after
    assert task.micro == ("whole" if "word" in variant else "niah")
    assert len({example.gold for example in task.examples}) > 1


def test_right_words_score_fully() -> None:
    task = load("needles:haystack=notes,tokens=300,chunk=300,value=word", n=60)
    assert any("and" in example.answers[0] or "in" in example.answers[0] for example in task.examples)
    for example in task.examples:
        assert micro_counts(example.answers[0], example.answers[0], task.micro)[1:] == (0, 0)


@pytest.mark.parametrize("haystack", ["notes", "needles"])
def test_a_made_haystack_is_another_for_training(haystack: str) -> None:
    """Documents that a writer is trained on are not those that it is judged on."""
    spelling = f"needles:haystack={haystack},tokens=400,chunk=100"
    seen = [{text for e in load(s, n=8).examples for text in texts(e)} for s in (spelling, f"{spelling},split=train")]
    assert not seen[0] & seen[1]
    assert "split=test: choose" in failure(lambda: load(f"{spelling},split=test"))


@pytest.mark.parametrize("depth", [0, 50, 100])
def test_depth_is_where_the_needle_stands(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "plain.txt"
    path.write_text(" ".join(f"This is sentence {number}." for number in range(1000)))
    for example in load(f"needles:tokens=2000,chunk=200,depth={depth}", path, 5).examples:
        text = " ".join(texts(example))
        before = text[: text.index("One of the special magic")].count("sentence")
        assert before == pytest.approx(text.count("sentence") * depth / 100, abs=1)
        assert example.facts["depth"] == depth
        assert re.search(
            r"(^|[.] )One of the special magic numbers for \S+ is: \d{7}[.]($| This)", texts(example)[example.gold[0]]
        )


def test_a_haystack_is_cut_before_needles_go_in(tmp_path: Path) -> None:
    path = tmp_path / "plain.txt"
    path.write_text(" ".join(f"This is sentence {number}." for number in range(300)))
    held = set(chunking.pieces(path.read_text(), 400, encode))
    for example in load("needles:tokens=1600,chunk=400", path, 10).examples:
        assert [text in held for text in texts(example)].count(False) == 1
    assert "are asked for: ask for fewer" in failure(lambda: load("needles:tokens=90000", path))


def test_planting() -> None:
    first, second, third = (Needle("number", key, key) for key in "abc")
    chunks = ["One. Two.", "Three."]
    sentence = first.sentence
    assert sentence == "One of the special magic numbers for a is: a."
    made, places = plant(chunks, [first, second, third], [0, 100, 34])
    assert made == [f"{sentence} One. {third.sentence} Two.", f"Three. {second.sentence}"]
    assert places == [0, 1, 0]
    made, places = plant(["甲。乙。"], [first], [50])
    assert made == [f"甲。 {sentence}乙。"]


def test_rulers_words() -> None:
    rng = Random(1)
    [needle] = draw(rng, "number")
    before, question, answer = ask([needle])
    assert before == (
        "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about "
        "the number afterwards.\n"
    )
    assert question == f"What is the special magic number for {needle.key} mentioned in the provided text?"
    assert answer == needle.value
    many = [
        Needle("uuid", key, value, asked)
        for key, value, asked in (("a", "1", True), ("b", "2", True), ("c", "3", False), ("d", "4", True))
    ]
    before, question, answer = ask(many)
    assert before.startswith("Some special magic uuids are hidden")
    assert question == "What are all the special magic uuids for a, b, and d mentioned in the provided text?"
    assert answer == "1 2 4"
    assert ask(many[:2])[1].startswith("What are all the special magic uuids for a, and b mentioned")


def test_drawn_needles_avoid_the_text() -> None:
    taken = " ".join(needle.key for needle in draw(Random(1), "word", keys=800))
    drawn = draw(Random(2), "word", keys=50, values=2, queries=3, beside=taken)
    assert all(needle.key not in taken and needle.value not in taken for needle in drawn)
    assert len({needle.value for needle in drawn} | {needle.key for needle in drawn}) == 150
    assert [needle.asked for needle in drawn] == [True] * 6 + [False] * 94


# The evaluation data itself.

REAL = [*(f"longbench-{dataset}" for dataset in TEMPLATES), "hotpotqa:paragraphs=5", "musique:paragraphs=5"]
REAL += ["cacheblend-musique", "nq-open:passages=5", "kv-retrieval", "needles"]
REAL += [f"xquad:language={language}" for language in ("en", "zh", "ar", "hi", "ru", "de", "es")]
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=NO_DATA)


@needs_data
@pytest.mark.parametrize("spelling", REAL)
def test_the_evaluation_data_loads(spelling: str) -> None:
    task = load(spelling, DATA, 4, window=12_000)  # a token a byte: the long ones are cut
    assert len(task.examples) == 4
    for example in task.examples:
        assert all(example.answers)
        assert all(text.strip() for text in texts(example))
        assert "Passage 1:" not in "".join(texts(example))


@needs_data
@pytest.mark.parametrize("spelling", ["hotpotqa:paragraphs=5", "musique:paragraphs=5", "nq-open", "xquad:language=hi"])
def test_gold_documents_hold_what_they_should(spelling: str) -> None:
    examples = load(spelling, DATA, 50).examples
    held = [
        any(answer.lower() in texts(example)[place].lower() for answer in example.answers for place in example.gold)
        for example in examples
    ]
    told = [example for example in examples if example.answers[0] not in ("yes", "no")]
    assert all(example.gold for example in examples)
    assert sum(held) >= len(told) * 0.95  # a few answers are not in the words of the paragraphs


@needs_data
def test_passages_are_cut_where_the_data_says() -> None:
    path = DATA / "minilongbench" / "longbench_six.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    counted = {"triviaqa": chunking.shots, "hotpotqa": chunking.passages, "2wikimqa": chunking.passages}
    for record in records:
        if record["dataset"] in counted:
            spans = counted[record["dataset"]](record["context"])
            starts = record["passage_starts"]
            assert len(spans) == len(starts)
            assert all(0 <= low - start <= len("Passage 10:\n") for (low, _), start in zip(spans, starts, strict=True))
