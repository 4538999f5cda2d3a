"""The terms of a keyword search, and words as sparse vectors for services that keep such vectors and know no words.

In a sparse vector a term is a 32-bit hash, and its weight in a passage is BM25's term frequency part. The mean length
in it is a constant, as a vector that was written cannot follow the mean of a growing index.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
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


K1 = 1.2
"""BM25's saturation of repeated terms; Lucene's default, in every store."""
B = 0.75
"""BM25's normalisation by length, from 0 (none) to 1 (in full); Lucene's default, in every store."""
MEAN_LENGTH = 256
"""The mean length of a passage in terms; passages are about that long by default."""


def passage_weights(terms: Iterable[str]) -> dict[int, float]:
    """Return the weights of a passage's terms, by their hashes; all are above 0."""
    counts = _counted(terms)
    norm = K1 * (1 - B + B * counts.total() / MEAN_LENGTH)
    return {index: count * (K1 + 1) / (count + norm) for index, count in counts.items()}


def question_weights(terms: Iterable[str]) -> dict[int, float]:
    """Return the counts of a question's terms, by their hashes, the most frequent first."""
    return {index: float(count) for index, count in _counted(terms).most_common()}


def _counted(terms: Iterable[str]) -> Counter[int]:
    return Counter(int.from_bytes(blake2b(term.encode(), digest_size=4).digest(), "big") for term in terms)
