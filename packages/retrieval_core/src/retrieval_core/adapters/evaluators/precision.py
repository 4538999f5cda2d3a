"""Average precision of rankings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


def average_precision(verdicts: Sequence[bool]) -> float:
    """Return the mean, over the ranks of relevant passages, of the precision down to that rank.

    The formula of RAGAS' context precision: relevant passages that the list lacks do not count.

    Args:
        verdicts: Whether each passage is relevant, best first.

    Returns:
        In [0, 1]; 0 where none is relevant.
    """
    relevant = 0
    total = 0.0
    for rank, verdict in enumerate(verdicts, start=1):
        if verdict:
            relevant += 1
            total += relevant / rank
    return total / relevant if relevant else 0.0


def expected_average_precision(probabilities: Sequence[float]) -> float:
    """Return the expected value of :func:`average_precision` where passages are relevant with given probabilities.

    It is exact for independent passages: the numbers of relevant ones above and below a rank follow two Poisson
    binomial distributions.

    Args:
        probabilities: That each passage is relevant, best first. The work grows with the cube of their number.

    Returns:
        In [0, 1].
    """
    below = [np.ones(1)]
    for probability in reversed(probabilities):
        below.append(np.convolve(below[-1], (1 - probability, probability)))
    below.reverse()  # below[k] is the distribution of the relevant ones among probabilities[k:]
    above = np.ones(1)
    total = 0.0
    for rank, probability in enumerate(probabilities, start=1):
        count_above = np.arange(len(above))[:, None]
        count_below = np.arange(len(below[rank]))[None, :]
        share = (1 + count_above) / (1 + count_above + count_below)
        total += probability / rank * float(above @ share @ below[rank])
        above = np.convolve(above, (1 - probability, probability))
    return min(total, 1.0)
