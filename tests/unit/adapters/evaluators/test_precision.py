from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.evaluators.local import average_precision, expected_average_precision
from support.examples import times
from support.plugins import approx

if TYPE_CHECKING:
    from collections.abc import Sequence

likely = st.lists(st.floats(0, 1), max_size=7)


def by_enumeration(probabilities: Sequence[float]) -> float:
    total = 0.0
    for verdicts in product((False, True), repeat=len(probabilities)):
        chance = prod(p if verdict else 1 - p for p, verdict in zip(probabilities, verdicts, strict=True))
        total += chance * average_precision(verdicts)
    return total


def test_average_precision_is_the_mean_precision_at_relevant_ranks() -> None:
    """Relevant at 1 and 3: precision 1 and 2/3."""
    assert average_precision([True, False, True]) == approx(5 / 6)
    assert average_precision([False, True]) == approx(0.5)


def test_average_precision_of_nothing_relevant_is_0() -> None:
    """With no relevant passage, or no passage at all, nothing relevant comes first."""
    assert average_precision([False, False]) == 0
    assert average_precision([]) == expected_average_precision([]) == 0


@settings(max_examples=times(200))
@given(likely)
def test_the_expectation_is_the_mean_over_all_possible_verdicts(probabilities: list[float]) -> None:
    """The distributions above and below each rank give what enumerating all verdicts gives."""
    assert expected_average_precision(probabilities) == approx(by_enumeration(probabilities), abs=1e-9)


@settings(max_examples=times(100))
@given(st.lists(st.booleans(), max_size=20))
def test_certain_verdicts_give_the_average_precision(verdicts: list[bool]) -> None:
    """With probabilities of 0 and 1 there is one possible list of verdicts."""
    assert expected_average_precision([float(verdict) for verdict in verdicts]) == approx(average_precision(verdicts))


@settings(max_examples=times(200))
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_no_order_is_expected_to_be_better_than_the_likely_ones_first(probabilities: list[float]) -> None:
    """The score stays in [0, 1], and sorting by probability never lowers it."""
    best = expected_average_precision(sorted(probabilities, reverse=True))
    assert 0 <= expected_average_precision(probabilities) <= best + 1e-9 <= 1 + 1e-9
