"""Whether two ways of searching differ by more than chance: the paired randomisation test, and the paired bootstrap.

Both ways answer the same questions, so each question has a pair of figures. If the ways were equally good, chance alone
would say which figure of a pair belongs to which way. So the pairs are swapped at random, each by itself, and p is how
often the difference of means becomes as great as it was measured, in either direction (Smucker, Allan and Carterette,
"A comparison of statistical significance tests for information retrieval evaluation", CIKM 2007).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Figures = NDArray[np.float64]

SAMPLES = 20_000
_AT_A_TIME = 500
_ROUNDING = 1e-12
"""Differences that are equal but for the order of adding count as equal."""


def p_value(*differences: Figures, samples: int = SAMPLES, seed: int = 0) -> float:
    """Return how often chance alone makes a difference of means as great as that of these pairs.

    Args:
        differences: For each collection, one way's figures minus the other's, a question each. The statistic is the
            mean over the collections of the mean over their questions, so that each collection counts the same however
            many questions it has; pairs are swapped within their question only.
        samples: How many times all pairs are swapped at random.
        seed: Of the random numbers; the same one gives the same p.

    Returns:
        ``(as great + 1) / (samples + 1)``, two-sided, since what was measured is one of the possible outcomes itself.

    Raises:
        ValueError: There is no collection, or one without questions.
    """
    _check(differences)
    weighted = np.concatenate([part / (part.size * len(differences)) for part in differences])
    measured = abs(weighted.sum()) - _ROUNDING
    generator = np.random.default_rng(seed)
    as_great = 0
    for start in range(0, samples, _AT_A_TIME):
        signs = generator.choice((-1.0, 1.0), size=(min(_AT_A_TIME, samples - start), weighted.size))
        as_great += int(np.count_nonzero(np.abs(signs @ weighted) >= measured))
    return (as_great + 1) / (samples + 1)


def interval(*differences: Figures, samples: int = 10_000, seed: int = 0) -> tuple[float, float]:
    """Return between which two numbers a difference of means lies with 95 %: the paired bootstrap.

    Args:
        differences: As :func:`p_value` has them. Questions are drawn anew within each collection.
        samples: How many times.
        seed: Of the random numbers; the same one gives the same interval.

    Returns:
        The percentiles 2.5 and 97.5.

    Raises:
        ValueError: There is no collection, or one without questions.
    """
    _check(differences)
    generator = np.random.default_rng(seed)
    means = np.zeros(samples)
    for part in differences:
        for start in range(0, samples, _AT_A_TIME):
            drawn = generator.integers(part.size, size=(min(_AT_A_TIME, samples - start), part.size))
            means[start : start + len(drawn)] += part[drawn].mean(axis=1) / len(differences)
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def _check(differences: Sequence[Figures]) -> None:
    if not differences or not all(part.size for part in differences):
        msg = "a comparison needs at least one collection, and each of them at least one question"
        raise ValueError(msg)


def shown(p: float) -> str:
    """Return p for a table."""
    return f"{p:.4f}" if p >= 0.0001 else "< 0.0001"
