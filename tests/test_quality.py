"""Quality: the built-in reader answers held-out questions as well as it was recorded to, by every method."""

import json

import pytest

from quality import METHODS, RECORD, measure

TOLERANCE = 4.0
"""Points of F1, two and a half answers of sixty: what arithmetic of other machines may turn."""


@pytest.fixture(scope="module")
def recorded() -> dict[str, float]:
    return dict(json.loads(RECORD.read_text()))


@pytest.mark.parametrize("method", METHODS)
def test_f1_is_as_recorded(method: str, recorded: dict[str, float]) -> None:
    assert measure([method])[method] == pytest.approx(recorded[method], abs=TOLERANCE)
