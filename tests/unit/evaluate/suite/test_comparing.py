"""Comparing runs and choosing settings: noise is no regression, and what is real is found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retrieval_core.errors import InvalidParameterError
from retrieval_core.evaluate.suite import CaseStatus
from retrieval_core.evaluate.suite.results import MEASURES, compare
from support.suites import made_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from retrieval_core.evaluate.suite import SuiteResult

    Floats = npt.NDArray[np.float64]

pytestmark = pytest.mark.slow

EXPECTED = 2
"""Documents that each made-up question expects."""


def as_result(recalls: Floats) -> SuiteResult:
    return made_up({f"case {number:04}": float(value) for number, value in enumerate(recalls)})


def questions(drawn: np.random.Generator, count: int) -> Floats:
    """Return the recall of questions: most find both documents, some one, and few none."""
    return drawn.choice((0.0, 0.5, 1.0), count, p=(0.1, 0.25, 0.65))


def near_ties(drawn: np.random.Generator, recalls: Floats) -> Floats:
    """Return a run in which, of one question in eight, a document at the edge of the first five left or came."""
    moved = drawn.random(len(recalls)) < 1 / 8
    steps = drawn.choice((-1 / EXPECTED, 1 / EXPECTED), len(recalls))
    return np.where(moved, np.clip(recalls + steps, 0, 1), recalls)


def share_of_regressions(pairs: int, make: Mapping[str, int], drop: float) -> float:
    """Return in how many pairs of runs a regression is seen; ``drop`` is by how much recall falls on average."""
    drawn = np.random.default_rng(7)
    seen = 0
    for number in range(pairs):
        true = questions(drawn, make["cases"])
        before, after = near_ties(drawn, true), near_ties(drawn, true)
        if drop:
            fall = drawn.random(len(after)) < drop * EXPECTED / np.mean(after > 0)
            after = np.where(fall, np.clip(after - 1 / EXPECTED, 0, 1), after)
        compared = compare(as_result(before), as_result(after), seed=number)
        seen += compared.change == "regression"
    return seen / pairs


def test_reordered_ties_are_rarely_called_a_regression() -> None:
    """Of 300 pairs of runs that differ by these alone, at most 5 %."""
    assert share_of_regressions(300, {"cases": 200}, drop=0) <= 0.05


def test_a_drop_of_5_points_is_found() -> None:
    """On 200 cases, in at least 80 % of 300 draws."""
    assert share_of_regressions(300, {"cases": 200}, drop=0.05) >= 0.8


def test_equal_runs_have_no_difference() -> None:
    result = made_up(dict.fromkeys("abcdef", 1.0))
    compared = compare(result, result)
    assert (compared.difference, compared.low, compared.high, compared.change) == (0, 0, 0, "no more than noise")
    assert compared.changed == ()
    assert compared.is_same_corpus is True


def test_what_changed_is_listed() -> None:
    before = made_up({**dict.fromkeys("abcdef", 1.0), "gone": 0.5})
    after = made_up({**dict.fromkeys("abcde", 1.0), "f": 0.0, "new": 1.0}, corpus="other")
    compared = compare(before, after)
    assert [(case.name, case.before, case.after) for case in compared.changed] == [
        ("f", 1.0, 0.0), ("gone", 0.5, None), ("new", None, 1.0),
    ]  # fmt: skip
    assert (compared.cases, compared.is_same_corpus) == (6, False)
    assert compare(before, made_up(dict.fromkeys("abcdef", 1.0), corpus=None)).is_same_corpus is None


def test_what_could_not_be_judged_is_told() -> None:
    """It has no measure, so it is not among those compared, and must not pass for well."""
    before = made_up(dict.fromkeys("abcdef", 1.0))
    broken = replace(before.results[0], status=CaseStatus.ERROR, measures={})
    after = replace(before, results=(broken, *before.results[1:]))
    compared = compare(before, after)
    assert (compared.unjudged, compared.cases, compared.change) == (("a",), 5, "no more than noise")
    assert compare(after, after).unjudged == ()


def test_better_runs_are_improvements() -> None:
    names = [f"{number:02}" for number in range(30)]
    compared = compare(made_up(dict.fromkeys(names, 0.0)), made_up(dict.fromkeys(names, 1.0)))
    assert (compared.change, compared.low) == ("improvement", 1.0)


def test_too_few_cases_cannot_be_compared() -> None:
    with pytest.raises(InvalidParameterError, match="5 are needed"):
        compare(made_up(dict.fromkeys("abcd", 1.0)), made_up(dict.fromkeys("abcd", 1.0)))


@pytest.mark.parametrize("measure", ["recall", "", "recall@7"])
def test_a_measure_has_to_be_one_of_these(measure: str) -> None:
    result = made_up(dict.fromkeys("abcdef", 1.0))
    with pytest.raises(InvalidParameterError, match=MEASURES[0]):
        compare(result, result, measure=measure)
