"""How many terms of a question count."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TERMS = 128
"""A question is searched for by its first terms, this many: the work for a chunk grows with more than their number."""
MOST_REPEATS = 8
"""A term that a question repeats counts at most this many times."""


def limited(terms: Iterable[str]) -> list[str]:
    """Return the terms that count, in their order."""
    counts = Counter[str]()
    kept: list[str] = []
    for term in terms:
        counts[term] += 1
        if counts[term] <= MOST_REPEATS:
            kept.append(term)
    return kept[:MOST_TERMS]
