"""The arithmetic of the benchmark on confidence."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.plugins import approx


def _load() -> Any:
    """Import the file, which lies in no package."""
    file = Path(__file__).parents[3] / "benchmarks" / "calibration.py"
    spec = importlib.util.spec_from_file_location("benchmark_calibration", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


calibration = _load()
VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=20).map(np.array)


def test_a_fit_finds_the_curve_that_the_cases_follow() -> None:
    """Cases weighted by a known curve give its coefficients back."""
    grid = np.array([(one, two) for one in np.linspace(0, 1, 21) for two in np.linspace(0, 1, 21)])
    chances = calibration.logistic(-3 + grid @ np.array([4.0, 1.5]))
    signals = np.concatenate([grid, grid])
    truths = np.repeat([1.0, 0.0], len(grid))
    weights = np.concatenate([chances, 1 - chances]) / len(grid)
    found = calibration.fit(signals, truths, weights, ridge=0.0)
    assert found == approx(np.array([-3, 4, 1.5]), abs=1e-6)


def test_a_fit_ends_where_a_signal_separates_the_cases() -> None:
    """Without the ridge the coefficients would grow without end."""
    found = calibration.fit(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]), np.array([0.5, 0.5]))
    assert np.isfinite(found).all()
    assert calibration.logistic(found[0] + found[1]) > 0.98


@given(VALUES, VALUES)
def test_area_is_the_part_of_the_pairs_in_order(above: Any, below: Any) -> None:
    """It is as if every pair were looked at."""
    pairs = [(one > two) + (one == two) / 2 for one in above for two in below]
    assert calibration.area(above, below) == approx(sum(pairs) / len(pairs))


def test_chances_that_come_true_have_no_error() -> None:
    """A tenth whose mean is its true share errs by nothing, and by the distance otherwise."""
    values, weights = np.array([0.25, 0.25, 0.25, 0.25]), np.full(4, 0.25)
    truths = np.array([1.0, 0.0, 0.0, 0.0])
    assert calibration.calibration_error(values, truths, weights) == approx(0)
    assert calibration.calibration_error(values, 1 - truths, weights) == approx(0.5)
    assert calibration.brier(values, truths, weights) == approx((0.75**2 + 3 * 0.25**2) / 4)


@given(VALUES)
def test_every_case_is_in_one_bin(values: Any) -> None:
    """Ends of the range included."""
    weights = np.full(len(values), 1 / len(values))
    found = list(calibration.bins(values, np.zeros(len(values)), weights))
    assert sum(count for _, count, *_ in found) == len(values)
    assert all(lower - 1e-9 <= mean <= lower + 0.1 + 1e-9 for lower, _, _, mean, _ in found)
