"""From documents to answers: reuse, versions, damage, layouts, several turns, evidence."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import Load
from conversations import CARD, DOCUMENTS, QUESTION, SHOWN, SIMPLE, Request, isolated_mask, native_logits, spelled
from kvbind import Bank, Doc, Document, Engine, Message, Page, Sampling, Text
from kvbind.bank import content_key
from kvbind.errors import BankError, DocumentError, MethodError, ModelError, PromptTooLongError, RenderError
from kvbind.models import Context
from kvbind.steps import decode as decode_step
from kvbind.steps.layout import Layout, Segment
from kvbind.steps.stitch import place
from kvbind.types import StackedKV
from tiny import VISION

IDS = [document.id for document in DOCUMENTS]
SHORT = Sampling(max_tokens=5)
shown = pytest.mark.parametrize(("name", "dpi"), SHOWN)


def make_engine(load: Load, name: str = "qwen2", bank: Bank | None = None) -> Engine:
    engine = Engine(load(name), bank, page=CARD)
    for document in DOCUMENTS:
        engine.add(document)
    return engine


def test_the_second_question_compiles_nothing(load: Load) -> None:
    engine = make_engine(load)
    first = engine.ask(QUESTION, IDS, sampling=SHORT)
    second = engine.ask("How many dogs?", IDS[::-1], sampling=SHORT)
    assert {source.state for source in first.sources} == {"compiled now"}
    assert {source.state for source in second.sources} == {"hit"}
    assert [source.document for source in second.sources] == IDS[::-1]
    assert second.tokens["compiled"] == 0
    assert second.tokens["reused"] == first.tokens["compiled"] > 0


def test_compiling_again_skips_everything(load: Load) -> None:
    engine = Engine(load("glm4v"), page=CARD)
    seen = []
    first = engine.compile(DOCUMENTS, "qv-pic", progress=seen.append)
    assert (first.documents, first.passages, first.compiled, first.skipped) == (3, 6, 6, 0)
    assert seen[-1] == first
    second = engine.compile(DOCUMENTS, "qv-pic")
    assert (second.compiled, second.skipped, second.rows, second.bytes) == (0, 6, 0, 0)
    third = engine.compile(DOCUMENTS, "template:dpi=120")
    assert third.skipped == 3, "uniform 120 DPI shares qv-pic's passages"


def test_any_system_prompt_takes_the_same_passages(load: Load) -> None:
    engine = make_engine(load)
    engine.compile(DOCUMENTS, "template")
    answer = engine.ask(QUESTION, IDS, system="You are a harbour master. Be brief.", sampling=SHORT)
    assert {source.state for source in answer.sources} == {"hit"}
    assert answer.tokens["head"] > engine.ask(QUESTION, IDS, sampling=SHORT).tokens["head"]


@pytest.mark.parametrize("name", ["qwen2", "glm4v"])
def test_a_new_version_takes_the_old_ones_place(load: Load, name: str) -> None:
    engine = make_engine(load, name)
    method = "template:dpi=72" if name == "glm4v" else "template"
    engine.ask(QUESTION, IDS, method=method, sampling=SHORT)
    old = {info.id: info for info in engine.bank.documents()}
    engine.add(Document("storm", "The storm arrived on a Sunday, and nobody saw it first."))
    new = {info.id: info for info in engine.bank.documents()}
    assert (old["storm"].version, new["storm"].version) == (1, 2)
    assert (old["storm"].passages, new["storm"].passages) == (1, 0)
    states = [source.state for source in engine.ask(QUESTION, IDS, method=method, sampling=SHORT).sources]
    assert states == ["hit", "compiled now", "hit"]


def test_a_damaged_passage_is_recompiled_and_the_answer_the_same(load: Load, tmp_path: Path) -> None:
    engine = make_engine(load, bank=Bank.open(tmp_path / "bank", hot_bytes=0))
    before = engine.ask(QUESTION, IDS, sampling=SHORT)
    passages = engine.bank.catalogue.linked()
    files = [next((tmp_path / "bank").rglob(f"{key}.safetensors")) for key in passages]
    content = bytearray(files[0].read_bytes())
    content[-9] ^= 4
    files[0].write_bytes(content)
    files[1].write_bytes(files[1].read_bytes()[:-100])
    after = engine.ask(QUESTION, IDS, sampling=SHORT)
    assert after.ids == before.ids
    assert sorted(source.state for source in after.sources) == ["compiled now", "compiled now", "hit"]
    assert len(engine.bank.damage) == 2
    assert {source.state for source in engine.ask(QUESTION, IDS, sampling=SHORT).sources} == {"hit"}


def test_a_bank_of_another_model_is_refused_by_name(load: Load, tmp_path: Path) -> None:
    make_engine(load, bank=Bank.open(tmp_path / "bank")).compile(DOCUMENTS, "template")
    other = Engine(load("qwen3"), Bank.open(tmp_path / "bank"), source="the/other")
    with pytest.raises(BankError, match=r"another model than the/other \(other .*weights.*; compile with"):
        other.ask(QUESTION, IDS)


@pytest.mark.parametrize(
    "change",
    ["write", "text", "ending", "dpi", "last", "spec", "model"],
)
def test_whatever_a_passage_depends_on_is_in_its_key(load: Load, change: str) -> None:
    engine = make_engine(load, "glm4v")
    library, method = engine.library, spelled("template", 72)
    representation = method.representations[0]
    chunk = library.chunks(DOCUMENTS[0], representation)[0]
    assert isinstance(representation, Page)
    before = library.key(chunk, representation, method.write)
    if change == "write":
        other = library.key(chunk, representation, spelled("dummy:k=4", 72).write)
    elif change == "text":
        other = library.key(replace(chunk, text=chunk.text + " "), representation, method.write)
    elif change == "ending":
        before = library.key(chunk, Text(), method.write)
        other = library.key(chunk, Text(ending="\n"), method.write)
    elif change == "dpi":
        other = library.key(chunk, replace(representation, dpi=73), method.write)
    elif change == "last":
        other = library.key(replace(chunk, last=not chunk.last), representation, method.write)
    elif change == "spec":
        spec = replace(representation.spec, margin_x=11)
        other = library.key(chunk, replace(representation, spec=spec), method.write)
    else:
        other = make_engine(load, "qwen2_vl").library.key(chunk, representation, method.write)
    assert other != before


def test_nothing_is_drawn_or_encoded_online(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Online there is no rendering, no visual encoding and no pass over documents (QV-PIC, online assembly)."""
    engine = make_engine(load, "glm4v")
    engine.compile(DOCUMENTS, "qv-pic")

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("drawn or encoded online")

    monkeypatch.setattr(type(engine.library.renderer(CARD)), "draw", forbidden)
    monkeypatch.setattr(type(engine.backbone), "encode_page", forbidden)
    answer = engine.ask(QUESTION, IDS, method="qv-pic", sampling=SHORT)
    assert {source.state for source in answer.sources} == {"hit"}


@pytest.mark.parametrize("name", VISION)
def test_qv_pic_promotes_what_is_relevant(load: Load, name: str) -> None:
    engine = make_engine(load, name)
    engine.compile(DOCUMENTS, "qv-pic")
    asked = "Who was the harbour master that saw the storm on Tuesday?"
    answer = engine.ask(asked, IDS, method="qv-pic:budget=1", sampling=SHORT, explain=True)
    assert [source.representation for source in answer.sources] == ["page@72", "page@120", "page@72"]
    best = max(answer.sources, key=lambda source: source.relevance or 0)
    assert best.document == "storm"
    assert best.promoted
    everything = engine.ask(asked, IDS, method="qv-pic:alpha=1,budget=9", sampling=SHORT)
    assert sum(source.promoted for source in everything.sources) >= 2
    nothing = engine.ask(asked, IDS, method="qv-pic:budget=0", sampling=SHORT)
    assert {source.representation for source in nothing.sources} == {"page@72"}
    assert nothing.ids == engine.ask(asked, IDS, method="template:dpi=72", sampling=SHORT).ids


def test_without_names_the_most_relevant_documents_are_taken(load: Load) -> None:
    engine = make_engine(load)
    answer = engine.ask("Which storm did the harbour master see on Tuesday?", top_k=1, sampling=SHORT)
    assert [source.document for source in answer.sources] == ["storm"]


@shown
@pytest.mark.parametrize("method", ["full", "prefix-free"])
def test_a_second_turn_equals_one_prompt(load: Load, name: str, dpi: int, method: str) -> None:
    """Two turns, the second with a new document, against one native forward over all their rows."""
    engine = make_engine(load, name)
    reference = engine.chat(method=spelled("full", dpi))  # its documents carry what the vision tower takes
    chat = engine.chat(method=spelled(method, dpi))
    layouts = []
    for question, ids, count in (("Who took the book there?", IDS[:2], 4), ("And the dogs?", IDS[2:], 1)):
        reference.ask(question, ids, sampling=Sampling(max_tokens=count))
        answer = chat.ask(question, ids, sampling=Sampling(max_tokens=count))
        layouts.append(_with_encodings(chat.turn.layout, reference.turn.layout))
        if len(layouts) == 1:
            answered = answer.ids
    joined = _joined(layouts, answered, engine.backbone.family.axes)
    request = Request(engine.library, joined)
    with torch.no_grad():
        expected = native_logits(request, isolated_mask(joined) if method == "prefix-free" else None)[-1]
    torch.testing.assert_close(chat.turn.logits, expected, rtol=1e-3, atol=2e-3)


def _with_encodings(layout: Layout, reference: Layout) -> Layout:
    encodings = {segment.part: segment.encoding for segment in reference.chunks}
    return Layout(tuple(replace(s, encoding=encodings.get(s.part)) for s in layout.segments), layout.end)


def _joined(layouts: Sequence[Layout], answered: tuple[int, ...], axes: int) -> Layout:
    """Both turns in one layout, with the rows of the first answer that decoding filled between them."""
    first, second = layouts
    count = second.segments[0].start - first.rows
    positions = torch.arange(first.end, first.end + count).expand(axes, -1)
    answer = Segment("fresh", torch.tensor(answered[:count], dtype=torch.long), positions, first.rows)
    return Layout((*first.segments, answer, *second.segments), second.end)


def test_a_second_turn_computes_only_what_is_new(load: Load) -> None:
    engine = make_engine(load)
    chat = engine.chat()
    chat.ask(QUESTION, IDS, sampling=SHORT)
    second = chat.ask("Why?", sampling=SHORT)
    assert second.sources == ()
    assert 0 < second.tokens["fresh"] < 40
    assert second.tokens["head"] == 0


@pytest.mark.parametrize("when", ["first", "second"])
def test_an_interrupted_turn_leaves_the_conversation_as_it_was(
    load: Load, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    engine = make_engine(load)
    undisturbed, chat = engine.chat(), engine.chat()
    if when == "second":
        for each in (undisturbed, chat):
            each.ask(QUESTION, IDS, sampling=SHORT)
    expected = undisturbed.ask("Why?", IDS[:1], sampling=SHORT)
    original, calls = decode_step.step, []

    def interrupted(*arguments: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(decode_step, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            chat.ask("Never mind.", IDS[:2], sampling=Sampling(max_tokens=30))
    assert chat.ask("Why?", IDS[:1], sampling=SHORT).ids == expected.ids


def test_evidence_changes_nothing(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(load)
    plain, chat = engine.chat(), engine.chat()
    plain.ask(QUESTION, IDS, sampling=SHORT)
    answer = chat.ask(QUESTION, IDS, sampling=SHORT, explain=True)
    assert 0.05 < sum(source.attention for source in answer.sources) < 1
    for layer in range(engine.backbone.shape[0]):
        size = plain.context.size
        assert torch.equal(chat.context.keys[layer][:, :, :size], plain.context.keys[layer][:, :, :size])
        assert torch.equal(chat.context.values[layer][:, :, :size], plain.context.values[layer][:, :, :size])


@pytest.mark.parametrize("method", ["full", "template"])
def test_attention_shares_are_those_of_the_eager_forward(load: Load, method: str) -> None:
    """The evidence, against the attention weights that transformers itself reports."""
    engine = make_engine(load, "qwen3")
    chat = engine.chat(method=method)
    answer = chat.ask([Message("user", [Doc("pier"), QUESTION])], sampling=SHORT, explain=True)
    model, layout = engine.backbone.model, chat.turn.layout
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            weights = model(layout.ids[None], output_attentions=True).attentions[engine.backbone.shape[0] // 2]
    finally:
        model.set_attn_implementation("kvbind_sdpa")
    expected = weights[0, :, -1].mean(0)[layout.chunks[0].rows].sum()
    assert answer.sources[0].attention == pytest.approx(float(expected), abs=1e-4)


def test_both_ways_of_placing_agree(load: Load) -> None:
    backbone = load("glm4v")
    with torch.no_grad():
        kv = StackedKV(torch.randn(3, 2, 7, 32), torch.randn(3, 2, 7, 32))
        segment = Segment("passage", torch.arange(7), torch.arange(11, 18).expand(3, -1), 4)
        fast = Context(backbone.shape, 16)
        fast.extend(12)
        place(backbone, fast, segment, kv, 9)
    simple = Context(backbone.shape, 16)  # made with gradients on: one buffer per layer
    simple.extend(12)
    assert simple.blocks is None
    place(backbone, simple, segment, kv, 9)
    for layer in range(3):
        assert torch.equal(fast.keys[layer][:, :, 4:11], simple.keys[layer][:, :, 4:11])
        assert torch.equal(fast.values[layer][:, :, 4:11], simple.values[layer][:, :, 4:11])


def test_a_prompt_longer_than_the_window(load: Load) -> None:
    engine = make_engine(load)
    window = engine.backbone.window
    engine.add(Document("long", "word " * window))
    with pytest.raises(PromptTooLongError, match=f"document long takes .* window is {window}"):
        engine.ask(QUESTION, ["long"])
    for number in range(9):
        engine.add(Document(f"half-{number}", "storm " * (window // 5)))
    with pytest.raises(PromptTooLongError, match="ask over fewer"):
        engine.ask(QUESTION, [f"half-{number}" for number in range(9)])
    with pytest.raises(PromptTooLongError, match="ask over fewer"):
        engine.ask(QUESTION, ["long"], method="full")


def test_pages_need_a_model_that_sees(load: Load) -> None:
    with pytest.raises(ModelError, match=r"qv-pic shows page images, .* reads text only: choose a text method"):
        make_engine(load).ask(QUESTION, IDS, method="qv-pic")


def test_what_cannot_be_asked(load: Load) -> None:
    engine = make_engine(load)
    with pytest.raises(MethodError, match="question is empty"):
        engine.ask("  ")
    with pytest.raises(MethodError, match="nothing to compile"):
        engine.compile(DOCUMENTS, "full")
    with pytest.raises(DocumentError, match=r"no document 'strom'.*'storm'"):
        engine.ask(QUESTION, ["strom"])
    with pytest.raises(MethodError, match="one or the other"):
        engine.ask(SIMPLE, IDS)
    with pytest.raises(DocumentError, match="compile some first"):
        Engine(load("qwen2")).ask(QUESTION)


def test_documents_may_be_given_whole(load: Load) -> None:
    engine = Engine(load("qwen2"))
    answer = engine.ask(QUESTION, list(DOCUMENTS), sampling=SHORT)
    assert [source.document for source in answer.sources] == IDS


def test_a_question_without_documents(load: Load) -> None:
    engine = make_engine(load)
    for method in ("full", "template"):
        answer = engine.ask(QUESTION, [], method=method, sampling=SHORT)
        assert answer.sources == ()
        assert answer.tokens["fresh"] > 0
    assert engine.ask(QUESTION, [], method="full", sampling=SHORT).ids == answer.ids


def test_keys_are_the_same_in_another_process(load: Load, models: Callable[[str], Path]) -> None:
    engine = make_engine(load)
    chunk = engine.library.chunks(DOCUMENTS[0], spelled("template", 0).representations[0])[0]
    here = engine.library.key(chunk, spelled("template", 0).representations[0], spelled("template", 0).write)
    code = (
        "import sys; from kvbind import Engine, Document, parse_method; e = Engine.from_pretrained(sys.argv[1]);"
        "m = parse_method('template'); d = Document('x', sys.argv[2]);"
        "print(e.library.key(e.library.chunks(d, m.representations[0])[0], m.representations[0], m.write))"
    )
    there = subprocess.run(
        [sys.executable, "-c", code, str(models("qwen2")), DOCUMENTS[0].text],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "77", "PATH": "", "HOME": "/nonexistent"},
    )
    assert there.stdout.strip() == here
    assert len(here) == len(content_key({}))


def test_the_native_head_is_computed_once_per_bank(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_engine(load, bank=Bank.open(tmp_path / "bank"))
    expected = first.ask(QUESTION, IDS, sampling=SHORT)
    stats = first.bank.stats()
    assert (stats.passages, stats.orphans) == (3, 0)
    assert first.bank.verify() == []
    assert first.bank.prune() == 0
    second = make_engine(load, bank=Bank.open(tmp_path / "bank"))
    monkeypatch.setattr(type(second.library), "_compute_head", None)
    assert second.ask(QUESTION, IDS, sampling=SHORT).ids == expected.ids
    monkeypatch.undo()
    second.ask(QUESTION, IDS, system="Be brief.", sampling=SHORT)
    assert len(list((tmp_path / "bank" / "passages").rglob("*.safetensors"))) == 4, "requests' own heads are not kept"


# What a careless caller or a bad document must not do


def test_one_bad_document_costs_no_other(load: Load) -> None:
    """Those before it are compiled and stay usable; it is named, and does not enter the bank."""
    engine = Engine(load("qwen2"))
    bad = Document("bad", "word " * engine.backbone.window)
    with pytest.raises(PromptTooLongError, match="document bad takes"):
        engine.compile([*DOCUMENTS[:2], bad, DOCUMENTS[2]], "template")
    assert [info.passages for info in engine.bank.documents()] == [1, 1]
    assert {source.state for source in engine.ask(QUESTION, sampling=SHORT).sources} == {"hit"}


def test_a_page_with_nothing_to_draw_is_named(load: Load) -> None:
    engine = Engine(load("glm4v"), page=CARD)
    with pytest.raises(RenderError, match="document blank"):
        engine.compile([DOCUMENTS[0], Document("blank", "\u200b\u00ad"), DOCUMENTS[1]], "template:dpi=72")
    assert [info.id for info in engine.bank.documents()] == [DOCUMENTS[0].id]
    with pytest.raises(RenderError, match="document blank"):
        engine.ask(QUESTION, [Document("blank", "\u200b")], method="full:dpi=72")


@pytest.mark.parametrize("text", ["", " \n", "half \ud800 a character"])
def test_texts_that_cannot_be_documents(load: Load, text: str) -> None:
    engine = Engine(load("qwen2"))
    for act in (engine.add, lambda document: engine.compile([document]), lambda d: engine.ask(QUESTION, [d])):
        with pytest.raises(DocumentError, match="'odd'"):
            act(Document("odd", text))
    assert engine.bank.documents() == []


def test_documents_of_one_text_share_a_passage(load: Load) -> None:
    engine = Engine(load("qwen2"))
    twin = Document("twin", DOCUMENTS[0].text)
    report = engine.compile([DOCUMENTS[0], twin, DOCUMENTS[1]], "template")
    assert (report.passages, report.compiled, report.skipped) == (3, 2, 1)
    engine.bank.remove(DOCUMENTS[0].id)
    assert engine.ask(QUESTION, ["twin"], sampling=SHORT).sources[0].state == "hit"
    engine.add(DOCUMENTS[0])
    assert engine.ask(QUESTION, [DOCUMENTS[0].id], sampling=SHORT).sources[0].state == "hit"
    engine.bank.remove("twin")
    assert engine.ask(QUESTION, [DOCUMENTS[0].id], sampling=SHORT).sources[0].state == "hit"
    engine.bank.remove(DOCUMENTS[0].id)
    assert engine.bank.stats().passages == 1


def test_a_replaced_document_is_reported(load: Load) -> None:
    engine = Engine(load("qwen2"))
    assert engine.compile(DOCUMENTS).replaced == ()
    assert engine.compile([*DOCUMENTS[:2], Document("dogs", "Three dogs.")]).replaced == ("dogs",)
    assert engine.compile([Document("dogs", "Three dogs.")]).replaced == ()


def test_characters_a_font_lacks_are_reported_when_asking(load: Load) -> None:
    engine = Engine(load("glm4v"), page=CARD)
    documents = [Document("tibet", "a ཀ b ཁ ཀ"), DOCUMENTS[0]]
    for method in ("full:dpi=72", "qv-pic"):
        answer = engine.ask(QUESTION, documents, method=method, sampling=SHORT)
        assert answer.missing_characters == {"tibet": "ཀཁ"}
    assert engine.ask(QUESTION, documents, method="qv-pic", sampling=SHORT).missing_characters == {}


def test_system_prompts_are_never_dropped(load: Load) -> None:
    engine = make_engine(load)
    messages = [Message("user", [Doc("pier"), QUESTION])]
    chats = [engine.chat(system="Be brief."), engine.chat(), engine.chat()]
    chats[0].ask(messages, sampling=SHORT)
    chats[1].ask([Message("system", "Be brief."), *messages], sampling=SHORT)
    chats[2].ask(messages, sampling=SHORT)
    ids = [chat.turn.layout.ids.tolist() for chat in chats]
    assert ids[0] == ids[1] != ids[2]
    with pytest.raises(MethodError, match="two system prompts"):
        engine.ask([Message("system", "Be long."), *messages], system="Be brief.")


def test_a_messages_content_may_be_one_text(load: Load) -> None:
    engine = make_engine(load)
    chats = [engine.chat(), engine.chat()]
    chats[0].ask([Message("user", QUESTION)], sampling=SHORT)
    chats[1].ask([Message("user", [QUESTION])], sampling=SHORT)
    assert torch.equal(chats[0].turn.layout.ids, chats[1].turn.layout.ids)


def test_malformed_requests_are_named(load: Load) -> None:
    engine = make_engine(load)
    with pytest.raises(MethodError, match=r"documents='pier': give a list of ids, \['pier'\]"):
        engine.ask(QUESTION, "pier")
    with pytest.raises(MethodError, match="last message must be the user's"):
        engine.ask([])
    with pytest.raises(MethodError, match="last message must be the user's"):
        engine.ask([Message("user", QUESTION), Message("assistant", "Tomas.")])
    with pytest.raises(DocumentError, match="the user's message holds half a character"):
        engine.ask("Who\ud800?", IDS)


def test_earlier_turns_may_be_given(load: Load) -> None:
    """Documents in two user turns, with an answer between them."""
    engine = make_engine(load)
    messages = [
        Message("user", [Doc("pier"), "Who was the keeper?"]),
        Message("assistant", "Margaret Ellis."),
        Message("user", [Doc("storm"), QUESTION]),
    ]
    chat = engine.chat()
    answer = chat.ask(messages, sampling=SHORT)
    assert [source.document for source in answer.sources] == ["pier", "storm"]
    text = engine.backbone.tokenizer.decode(chat.turn.layout.ids)
    assert text.index("1874") < text.index("Margaret Ellis.<") < text.index("harbour master")


def test_two_engines_register_in_one_bank(load: Load, tmp_path: Path) -> None:
    banks = [Bank.open(tmp_path / "bank") for _ in range(2)]
    engines = [Engine(load(name), bank, source=name) for name, bank in zip(("qwen2", "qwen3"), banks, strict=True)]
    for engine in engines:
        engine.compile(DOCUMENTS, "template")
    for engine in engines:
        assert {source.state for source in engine.ask(QUESTION, IDS, sampling=SHORT).sources} == {"hit"}


def test_retrieval_sees_what_another_process_added(load: Load, tmp_path: Path) -> None:
    here, there = (Engine(load("qwen2"), Bank.open(tmp_path / "bank")) for _ in range(2))
    here.compile(DOCUMENTS[:1])
    assert [doc.id for doc in here.retrieve("storm on Tuesday", 1)] == ["pier"]
    there.compile(DOCUMENTS)
    assert [doc.id for doc in here.retrieve("storm on Tuesday", 1)] == ["storm"]
    there.bank.remove("storm")
    assert [doc.id for doc in here.retrieve("storm on Tuesday", 3)] != ["storm"]


@pytest.mark.parametrize("name", ["llama-llama3", "qwen2", "glm4v"])
def test_a_raw_prompt_is_its_words_alone(load: Load, name: str) -> None:
    engine = make_engine(load, name)
    chat = engine.chat(method="full", raw=True)
    chat.ask([Message("user", ["Read.", Doc(IDS[0]), QUESTION])], sampling=SHORT)
    assert chat.turn is not None
    encode = engine.backbone.tokens
    begin = [engine.backbone.tokenizer.bos_token_id] if name.startswith("llama") else []
    written = [*encode("Read."), *encode(DOCUMENTS[0].text + "\n\n"), *encode(QUESTION)]
    assert chat.turn.layout.ids.tolist() == begin + written
    with pytest.raises(MethodError, match="no second turn"):
        chat.ask("And then?")
    with pytest.raises(MethodError, match="no system prompt"):
        engine.ask(QUESTION, IDS, raw=True, system="Be brief.")


def test_relevance_is_measured_against_the_query(load: Load) -> None:
    engine = make_engine(load)
    words = "Which of these texts is it? Answer in one word."
    first = engine.ask(words, IDS, explain=True, query=DOCUMENTS[1].text, sampling=SHORT)
    assert max(first.sources, key=lambda source: source.relevance or 0).document == IDS[1]
    assert engine.ask(words, query=DOCUMENTS[2].text, top_k=1, sampling=SHORT).sources[0].document == IDS[2]
