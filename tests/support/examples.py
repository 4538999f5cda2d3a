"""How many examples a property is tried with, in proportion to the profile that a run has chosen."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""What Hypothesis draws where nothing else is said, and the least for a property where the whole suite runs."""


def times(examples: int) -> int:
    """Return how many examples to draw for a property that usually has so many."""
    return max(1, examples * settings().max_examples // USUAL)
