"""The generator of notes: seeded, answers to be read in one note alone, and evaluation never seen in training."""

import re
from collections import Counter
from random import Random

import pytest

from kvbind.errors import DocumentError
from kvbind.notes import KINDS, LONGEST, Words, ask, make_context, make_note, make_sample
from kvbind.notes.words import EVAL_SHARE, number, side, surname, town
from kvbind.render import Renderer
from kvbind.types import PageSpec

SEEDS = range(60)
CARD = PageSpec(336, 84, 0, 0, 0, font_size=10, line_height=16.8, crop_width=False, crop_last_page=False)
ATTRIBUTES = [(kind, name) for kind in KINDS for name in KINDS[kind].attributes]


def test_same_arguments_same_sample() -> None:
    assert make_sample(7, notes=4, split="eval") == make_sample(7, notes=4, split="eval")
    assert make_sample(7) != make_sample(8)
    assert make_sample(7, split="train") != make_sample(7, split="eval")


@pytest.mark.parametrize("split", ["train", "eval"])
def test_the_answer_stands_in_the_gold_note_and_in_no_other(split: str) -> None:
    for seed in SEEDS:
        sample = make_sample(seed, notes=5, split=split)  # type: ignore[arg-type]
        holding = [place for place, note in enumerate(sample.notes) if sample.answer in note.text]
        assert holding == [sample.gold]
        assert sample.kind == sample.notes[sample.gold].metadata["kind"]
        assert sample.attribute in KINDS[sample.kind].attributes


def test_gold_is_anywhere() -> None:
    places = Counter(make_sample(seed, notes=4).gold for seed in range(400))
    assert sorted(places) == [0, 1, 2, 3]
    assert min(places.values()) > 60


def test_no_subject_and_no_value_occurs_twice_in_a_context() -> None:
    for seed in SEEDS:
        context = make_context(seed, notes=7, questions=100)
        answers = [question.answer for question in context.questions]
        assert len(set(answers)) == len(answers) >= 7 * 4
        assert len({note.id for note in context.notes}) == 7


def test_a_question_names_its_subject_and_asks_once_for_each_fact() -> None:
    context = make_context(3, notes=3, questions=50)
    asked = [(question.gold, question.attribute) for question in context.questions]
    assert len(set(asked)) == len(asked)
    for question in context.questions:
        assert context.notes[question.gold].id.partition("/")[2] in question.text


def test_words_belong_to_one_split() -> None:
    drawn = {
        split: {Words(Random(seed), split).draw(make) for seed in range(150) for make in (surname, town, number)}
        for split in ("train", "eval")
    }
    assert not drawn["train"] & drawn["eval"]
    assert {side(word) for word in drawn["eval"]} == {"eval"}


def test_names_of_evaluation_never_occur_in_training() -> None:
    def names(split: str) -> set[str]:
        contexts = [make_context(seed, notes=5, kinds=["biography"], split=split) for seed in range(200)]  # type: ignore[arg-type]
        return {word for context in contexts for note in context.notes for word in note.id.partition("/")[2].split()}

    assert not names("train") & names("eval")


def test_the_share_of_words_held_out_is_as_stated() -> None:
    words = {town(Random(seed)) for seed in range(4000)}
    share = sum(side(word) == "eval" for word in words) / len(words)
    assert share == pytest.approx(1 / EVAL_SHARE, abs=0.03)


@pytest.mark.parametrize(("kind", "name"), ATTRIBUTES)
def test_every_attribute_has_many_wordings(kind: str, name: str) -> None:
    attribute = KINDS[kind].attributes[name]
    assert len(set(attribute.sentences)) >= 10
    assert len(set(attribute.questions)) >= 4
    for sentence in attribute.sentences:
        fields = re.findall(r"{(\w)}", sentence)
        assert fields.count("v") == 1
        assert len(fields) == 2
        assert sentence.startswith("{S}") or "{S}" not in sentence
        assert sentence.endswith(".")
    assert all("{N}" in question and question.endswith("?") for question in attribute.questions)


def test_values_of_an_attribute_are_many() -> None:
    for kind, name in ATTRIBUTES:
        rng = Random(name)
        assert len({KINDS[kind].attributes[name].make(rng) for _ in range(300)}) > 100, (kind, name)


def test_every_note_fits_one_small_card() -> None:
    renderer = Renderer(CARD)
    for seed in SEEDS:
        for note in make_context(seed, notes=3).notes:
            assert 120 <= len(note.text) <= LONGEST
            assert len(renderer.paginate(note.text)) == 1


def test_a_note_of_few_facts_states_as_many() -> None:
    for kind in KINDS:
        words = Words(Random(kind), "train")
        note = make_note(words, kind, facts=2)
        assert len(note.facts) == 2
        assert all(value in note.document.text for value in note.facts.values())
        assert note.subject.full.lower() in note.document.text.lower()
        assert {question.attribute for question in ask(words.rng, [note], 9)} == set(note.facts)


def test_kinds_can_be_chosen() -> None:
    for kind in KINDS:
        assert {note.metadata["kind"] for note in make_context(1, notes=6, kinds=[kind]).notes} == {kind}


@pytest.mark.parametrize("arguments", [{"notes": 0}, {"questions": 0}, {"kinds": ["poem"]}, {"kinds": []}])
def test_bad_arguments_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(DocumentError, match=r"ask for|choose"):
        make_context(1, **arguments)  # type: ignore[arg-type]
