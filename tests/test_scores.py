"""Scores, worked out by hand: LongBench's F1 and exact match, and corpus micro-F1."""

import pytest

from kvbind.scores import (
    EXTRACT,
    exact_match,
    first_line,
    longbench_f1,
    micro_counts,
    micro_f1,
    without_thoughts,
)

F1 = [
    # prediction, answers, F1
    ("Paris", ["Paris"], 1),
    ("paris.", ["PARIS!"], 1),
    ("the Eiffel Tower", ["Eiffel Tower"], 1),  # articles do not count
    ("Paris", ["London"], 0),
    ("in Paris", ["Paris"], 2 / 3),  # precision 1/2, recall 1
    ("Bell", ["Ruth Ann Bell"], 1 / 2),  # precision 1, recall 1/3
    ("Bell", ["Ruth Ann Bell", "Ruth Bell", "Oslo"], 2 / 3),  # the best of the answers
    ("well-known", ["wellknown"], 1),  # punctuation is deleted, not split at
    ("well known", ["well-known"], 0),
    ("U.S.A", ["usa"], 1),
    ("a.b", ["b"], 0),  # punctuation goes before articles: "ab" has none
    ("'a' b", ["b"], 1),  # … and so does this one
    ("theatre an hour", ["theatre hour"], 1),  # whole words only
    ("Los-the-Angeles", ["LostheAngeles"], 1),
    ("dog dog cat", ["dog cat"], 4 / 5),  # multiset: the second dog is wrong, 2/3 and 1
    ("dog dog", ["dog dog dog"], 4 / 5),
    ("cat dog", ["dog cat"], 1),  # in any order
    ("", ["Paris"], 0),
    ("Paris", [""], 0),
    ("", [""], 0),
    ("the", ["a"], 0),  # nothing on either side
    ("Paris", [], 0),
    ("“Paris”", ["Paris"], 0),  # marks beyond ASCII stay
    ("Gar\u00e7on — caf\u00e9", ["gar\u00e7on caf\u00e9"], 4 / 5),
    ("厦门大学", ["厦门大学"], 1),
    ("厦门大学。", ["厦门大学"], 0),
    ("İzmir", ["i\u0307zmir"], 1),  # lower case of one letter is two
    ("Paris\nLondon", ["Paris London"], 1),  # any blank splits
    ("yes", ["no"], 0),
    ("Yes, it is", ["yes"], 1 / 2),  # no rule for yes and no
    ("$1,000", ["1000"], 1),
    ("3.5", ["35"], 1),
]

FIRST_LINE = [
    ("Paris\nQuestion: why", ["Paris"], 1),
    ("\n\nParis\nLondon", ["Paris"], 1),  # empty lines at the start are skipped
    (" \nParis", ["Paris"], 0),  # … but this one is not empty
    ("Paris\rLondon", ["Paris"], 2 / 3),  # only \n ends a line
    ("", ["Paris"], 0),
]


@pytest.mark.parametrize(("prediction", "answers", "expected"), F1)
def test_longbench_f1(prediction: str, answers: list[str], expected: float) -> None:
    assert longbench_f1(prediction, answers) == pytest.approx(expected)
    assert longbench_f1(prediction, reversed(answers)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Paris", "Paris"),
        ("<think>London? No.</think>Paris", "Paris"),
        ("London? No.</think> Paris<|user|>", "Paris"),
        ("<think>one</think>London<think>two</think>Paris", "Paris"),
        ("<think>London? Or", ""),
        ("a < b and b > c, |x|", "a < b and b > c, |x|"),
    ],
)
def test_thoughts_and_tags_are_not_the_answer(text: str, said: str) -> None:
    assert without_thoughts(text) == said


@pytest.mark.parametrize(("prediction", "answers", "expected"), FIRST_LINE)
def test_only_the_first_line_counts(prediction: str, answers: list[str], expected: float) -> None:
    assert longbench_f1(first_line(prediction), answers) == pytest.approx(expected)
    assert exact_match(first_line(prediction), answers) == float(expected == 1)


def test_without_the_rule_every_line_counts() -> None:
    assert longbench_f1("Paris\nLondon", ["Paris"]) == pytest.approx(2 / 3)
    assert exact_match("Paris\nLondon", ["Paris"]) == 0


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("The Paris.", ["London", "paris"], 1),
        ("in Paris", ["Paris"], 0),
        ("cat dog", ["dog cat"], 0),  # F1 is 1
        ("dog", ["dog dog"], 0),
        ("", [""], 0),
        ("the", ["an"], 0),
        ("Paris", [], 0),
    ],
)
def test_exact_match(prediction: str, answers: list[str], expected: float) -> None:
    assert exact_match(prediction, answers) == expected


@pytest.mark.parametrize(("prediction", "answers", "expected"), F1)
def test_an_exact_match_has_all_the_f1(prediction: str, answers: list[str], expected: float) -> None:
    assert exact_match(prediction, answers) <= longbench_f1(prediction, answers)


COUNTS = [
    # prediction, answer, extract, (true positives, false positives, false negatives)
    ("Ruth Bell", "Ruth Bell", "whole", (2, 0, 0)),
    ("  RUTH bell.. ", "ruth bell", "whole", (2, 0, 0)),
    ("the Bell", "Bell", "whole", (1, 1, 0)),  # articles count
    ("Bell,", "Bell", "whole", (0, 1, 1)),  # and so does punctuation
    ("dog dog cat", "dog cat cat", "whole", (2, 1, 1)),
    ("", "Ruth Bell", "whole", (0, 0, 2)),
    ("Oslo", "", "whole", (0, 1, 0)),
    ("Bell. \n", "Bell.", "whole", (1, 0, 0)),
    ("so it is Oslo. Short Answer: Oslo.", "Oslo", "answer", (1, 0, 0)),
    ("ANSWER : x, then answer:\nRuth Bell", "Ruth Bell", "answer", (2, 0, 0)),  # the last one
    ("it is Oslo", "Oslo", "answer", (0, 0, 1)),  # a chain cut off has no answer at all
    ("Answer:", "Oslo", "answer", (0, 0, 1)),
    ("She studied Marine Geology.", "marine geology", "biography", (2, 0, 0)),
    ("Ruth Bell was born in Oslo, Norway", "Oslo, Norway", "biography", (2, 0, 0)),  # " in " comes before " was "
    ("The date is: 3 May 1970.", "3 May 1970", "biography", (3, 3, 0)),  # " is " needs blanks
    ("Oslo, Norway.", "Oslo, Norway", "biography", (2, 0, 0)),
    ("She attended Kell University, in Oslo", "Kell University", "biography", (1, 3, 1)),  # "university,"
    ("The numbers are: 12, 34 and 56.", "12 34 56", "niah", (3, 0, 0)),
    ("The number is 12.", "12", "niah", (1, 0, 0)),
    ("12,34", "34 12", "niah", (2, 0, 0)),
    ("sandy-otter", "sandy-otter", "niah", (0, 2, 1)),  # "and" goes inside words too: "s", "y-otter"
    ("12 in the text", "12", "niah", (0, 2, 1)),  # what comes after "in" is all that is left
]


@pytest.mark.parametrize(("prediction", "answer", "extract", "expected"), COUNTS)
def test_micro_counts(prediction: str, answer: str, extract: str, expected: tuple[int, int, int]) -> None:
    assert micro_counts(prediction, answer, extract) == expected


def test_every_extraction_is_in_the_table() -> None:
    assert {extract for _, _, extract, _ in COUNTS} == set(EXTRACT)


def test_micro_f1_sums_before_it_divides() -> None:
    counts = [micro_counts("Ruth", "Ruth Bell"), micro_counts("it is Oslo", "Oslo")]
    assert counts == [(1, 0, 1), (1, 2, 0)]
    assert micro_f1(counts) == pytest.approx(4 / 7)  # the mean of the two F1s is 7/12
    assert micro_f1([(0, 3, 1), (0, 0, 2)]) == 0
    assert micro_f1([]) == 0
    assert micro_f1([(5, 0, 0)]) == 1


def test_a_long_wrong_answer_hurts_the_whole_corpus() -> None:
    right = micro_counts("Oslo", "Oslo")
    assert micro_f1([right, micro_counts("", "Bergen")]) > micro_f1([right, micro_counts("no idea at all", "Bergen")])
