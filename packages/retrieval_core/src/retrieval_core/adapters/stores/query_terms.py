"""The terms of a keyword search."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from retrieval_core.text.analysis import Analyzer


MOST_TERMS = 128
"""The most terms of a query, repeated ones included: the work for a chunk grows with more than their number."""
MOST_REPEATS = 8
"""How often a repeated term counts at most."""


def limited(terms: Iterable[str]) -> list[str]:
    """Return the first :data:`MOST_TERMS` terms in their order, each at most :data:`MOST_REPEATS` times."""
    counts = Counter[str]()
    kept: list[str] = []
    for term in terms:
        counts[term] += 1
        if counts[term] <= MOST_REPEATS:
            kept.append(term)
    return kept[:MOST_TERMS]


def query_terms(analyzer: Analyzer, text: str, count_chunks: Callable[[str], int]) -> list[str]:
    """Return the terms to search for; each counts as often as it is repeated.

    Two adjacent words are searched for as one word too, if more chunks contain that word than one of the two:
    ``rollback`` for ``roll back``. It counts twice, since it stands for two words.

    Args:
        count_chunks: Returns how many chunks contain a term.
    """
    joined: list[str] = []
    for compound in analyzer.open_compounds(text):
        count = count_chunks(compound.joined)
        if count and any(count_chunks(part) < count for part in compound.parts):
            joined += [compound.joined] * 2
    return limited([*joined, *analyzer.query_terms(text)])
