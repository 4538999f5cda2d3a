"""The paired randomisation test and the paired bootstrap of the benchmarks."""

from __future__ import annotations

import importlib.util
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def _load() -> Any:
    """Import the file, which lies in no package."""
    file = Path(__file__).parents[3] / "benchmarks" / "significance.py"
    spec = importlib.util.spec_from_file_location("benchmark_significance", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


significance = _load()


def _exact(*differences: Sequence[float]) -> float:
    """Return p over all ways to swap the pairs, each once."""
    weights = [1 / (len(part) * len(differences)) for part in differences for _ in part]
    values = [value for part in differences for value in part]
    weighted = [value * weight for value, weight in zip(values, weights, strict=True)]
    measured = abs(sum(weighted)) - 1e-9
    outcomes = [
        abs(sum(sign * value for sign, value in zip(signs, weighted, strict=True))) >= measured
        for signs in product((-1, 1), repeat=len(weighted))
    ]
    return sum(outcomes) / len(outcomes)


def _figures(values: Sequence[float]) -> NDArray[Any]:
    return np.array(values, dtype=np.float64)


def test_equal_figures_never_differ():
    """Two ways that do the same have p 1."""
    assert significance.p_value(_figures([0.0] * 12)) == 1


def test_a_difference_at_every_question_is_no_chance():
    """Only two of 2 ** 30 outcomes are as great, so none of the samples is, and p is the least there can be."""
    assert significance.p_value(_figures([0.1] * 30), samples=4_000) == 1 / 4_001


def test_differences_that_cancel_out_are_chance():
    """Means that are the same have p 1, however far apart the single figures are."""
    assert significance.p_value(_figures([0.4, -0.4, 0.2, -0.2])) == 1


def test_of_two_questions_half_of_the_outcomes_are_as_great():
    """With two equal differences, both signs the same way are as great, and those are half of the outcomes."""
    assert significance.p_value(_figures([0.3, 0.3])) == pytest.approx(0.5, abs=0.02)


def test_each_collection_counts_the_same():
    """Many questions of one collection do not outvote the few of another one."""
    many, few = [0.01] * 200, [-0.5, -0.4, -0.6, -0.5, -0.5, -0.3, -0.5, -0.5]
    both = significance.p_value(_figures(many), _figures(few))
    assert both == pytest.approx(2 / 2**8, abs=0.004)
    assert significance.p_value(_figures(many + few)) > 0.1


def test_the_same_seed_gives_the_same_p():
    """Another seed gives another sample, and the same one the same."""
    differences = _figures([0.3, -0.1, 0.25, 0.05, -0.2, 0.4, 0.1])
    assert significance.p_value(differences, seed=5) == significance.p_value(differences, seed=5)
    assert len({significance.p_value(differences, samples=500, seed=seed) for seed in range(5)}) > 1


def test_every_sample_is_drawn():
    """Numbers of samples that are no multiple of those drawn at a time count in full."""
    assert significance.p_value(_figures([1.0] * 40), samples=1_234) == 1 / 1_235


@pytest.mark.parametrize("differences", [(), ([],), ([0.1], [])])
def test_nothing_to_compare_is_an_error(differences: tuple[list[float], ...]):
    """There is no p without questions."""
    with pytest.raises(ValueError, match="at least one"):
        significance.p_value(*map(_figures, differences))


@given(st.lists(st.lists(st.sampled_from([-0.5, -0.2, 0.0, 0.1, 0.3]), min_size=1, max_size=4), min_size=1, max_size=2))
def test_p_is_near_that_of_all_outcomes(differences: list[list[float]]):
    """A sample tells the share of all outcomes that are as great, and the direction does not matter."""
    p = significance.p_value(*map(_figures, differences))
    assert p == pytest.approx(_exact(*differences), abs=0.02)
    assert p == significance.p_value(*(-_figures(part) for part in differences))


def test_the_interval_is_that_of_the_mean():
    """As wide as 1.96 standard errors to each side, and around the mean of the collections' means."""
    one, two = np.linspace(-0.1, 0.3, 400), np.linspace(0.2, 0.4, 100)
    low, high = significance.interval(one, two)
    error = np.sqrt(one.var() / one.size + two.var() / two.size) / 2
    assert (low, high) == pytest.approx((0.2 - 1.96 * error, 0.2 + 1.96 * error), abs=0.001)
    assert (low, high) == significance.interval(one, two)
    assert significance.interval(_figures([0.1] * 7)) == pytest.approx((0.1, 0.1))
    with pytest.raises(ValueError, match="at least one"):
        significance.interval()


def test_p_is_shown_with_four_places():
    """What is below them is told as such."""
    assert significance.shown(0.04321) == "0.0432"
    assert significance.shown(0.00005) == "< 0.0001"
