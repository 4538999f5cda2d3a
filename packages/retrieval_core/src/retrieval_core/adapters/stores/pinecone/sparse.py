"""Sparse vectors of words, for an index that keeps them beside the dense ones.

A term becomes a 32-bit hash, and its weight in a passage is BM25's term frequency part. Pinecone keeps no counts over
an index, so there is no inverse document frequency: a question's terms count as often as it has them. For the same
reason BM25's mean length is a constant.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from retrieval_core.text.analysis import Analyzer

K1 = 1.2
B = 0.75
"""Lucene's defaults, as in the other stores."""
MEAN_LENGTH = 256
"""The mean length of a passage in terms; passages are about that long by default."""
MOST_VALUES = 1_000
"""Values of one sparse vector in a hybrid index, from Pinecone's limits."""


def sparse_passage(analyzer: Analyzer, text: str, what: str) -> dict[int, float]:
    """Return the weights of a passage's terms, by their hashes; all are above 0.

    Raises:
        InvalidParameterError: The passage has more different terms than Pinecone keeps.
    """
    counts = Counter(map(_index, analyzer.terms(text)))
    if len(counts) > MOST_VALUES:
        msg = (
            f"{what} has {len(counts)} different terms, and Pinecone keeps at most {MOST_VALUES} values in a sparse "
            "vector. Split it into smaller chunks."
        )
        raise InvalidParameterError(msg)
    norm = K1 * (1 - B + B * counts.total() / MEAN_LENGTH)
    return {index: count * (K1 + 1) / (count + norm) for index, count in counts.items()}


def sparse_question(analyzer: Analyzer, text: str) -> dict[int, float]:
    """Return the counts of a question's terms, by their hashes; the thousand most frequent."""
    return {
        index: float(count)
        for index, count in Counter(map(_index, analyzer.query_terms(text))).most_common(MOST_VALUES)
    }


def _index(term: str) -> int:
    return int.from_bytes(blake2b(term.encode(), digest_size=4).digest(), "big")
