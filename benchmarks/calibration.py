"""Fitting chances and telling how good they are: arithmetic of ``answerability.py``, on arrays.

``values`` are one number a case, ``truths`` are 0 or 1, ``weights`` sum to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Figures = NDArray[np.float64]

RIDGE = 1e-4
"""Keeps the coefficients finite where a signal separates the cases without an error."""
STEPS = 100
BINS = 10


def fit(signals: Figures, truths: Figures, weights: Figures, *, ridge: float = RIDGE) -> Figures:
    """Return the coefficients of a weighted logistic regression, the constant first, by Newton's method.

    Args:
        signals: Shape ``(cases, signals)``.
        ridge: Weight of the squares of the coefficients but the constant.
    """
    rows = np.column_stack([np.ones(len(signals)), signals])
    penalty = ridge * np.diag([0.0, *np.ones(signals.shape[1])])
    found = np.zeros(rows.shape[1])
    loss = _loss(found, rows, truths, weights, penalty)
    for _ in range(STEPS):
        chances = logistic(rows @ found)
        slope = rows.T @ (weights * (chances - truths)) + penalty @ found
        curvature = rows.T @ (rows * (weights * chances * (1 - chances))[:, None]) + penalty
        step = np.linalg.solve(curvature, slope)
        # Far from the minimum, a whole step may lead uphill.
        while (after := _loss(found - step, rows, truths, weights, penalty)) > loss + 1e-12:
            step = step / 2
        found, gained, loss = found - step, loss - after, after
        if gained < 1e-12:
            break
    return found


def logistic(heights: Figures) -> Figures:
    """Return the logistic function, for heights of any size."""
    return 0.5 + 0.5 * np.tanh(heights / 2)


def area(above: Figures, below: Figures) -> float:
    """Return how often a value of ``above`` is the greater one, ties counting half: the area under the ROC curve."""
    ordered = np.sort(below)
    less = np.searchsorted(ordered, above, side="left")
    no_more = np.searchsorted(ordered, above, side="right")
    return float((less + no_more).sum() / (2 * len(above) * len(below)))


def brier(values: Figures, truths: Figures, weights: Figures) -> float:
    """Return the mean squared distance of chance and truth."""
    return float((weights * (values - truths) ** 2).sum())


def bins(values: Figures, truths: Figures, weights: Figures) -> Iterator[tuple[float, int, float, float, float]]:
    """Yield, of each tenth that has cases: its lower end, how many, their weight, the mean chance, the true share."""
    places = np.minimum((values * BINS).astype(int), BINS - 1)
    for place in range(BINS):
        chosen = places == place
        if weight := float(weights[chosen].sum()):
            mean, share = (float(part[chosen] @ weights[chosen]) / weight for part in (values, truths))
            yield place / BINS, int(chosen.sum()), weight, mean, share


def calibration_error(values: Figures, truths: Figures, weights: Figures) -> float:
    """Return the expected calibration error: how far mean chance and true share of a tenth are apart, in the mean."""
    return sum(weight * abs(mean - share) for _, _, weight, mean, share in bins(values, truths, weights))


def _loss(found: Figures, rows: Figures, truths: Figures, weights: Figures, penalty: Figures) -> float:
    heights = rows @ found
    return float(weights @ (np.logaddexp(0, heights) - truths * heights) + found @ penalty @ found / 2)
