"""Sparse vectors of words, for an index that keeps them beside the dense ones.

Pinecone keeps no counts over an index, so there is no inverse document frequency: a question's terms count as often as
it has them. For the rest see :mod:`retrieval_core.adapters.stores.term_vectors`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.term_vectors import passage_weights, question_weights
from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from retrieval_core.text.analysis import Analyzer

MOST_VALUES = 1_000
"""Values of one sparse vector in a hybrid index, from Pinecone's limits."""


def sparse_passage(analyzer: Analyzer, text: str, what: str) -> dict[int, float]:
    """Return the weights of a passage's terms, by their hashes; all are above 0.

    Raises:
        InvalidParameterError: The passage has more different terms than Pinecone keeps.
    """
    weights = passage_weights(analyzer.terms(text))
    if len(weights) > MOST_VALUES:
        msg = (
            f"{what} has {len(weights)} different terms, and Pinecone keeps at most {MOST_VALUES} values in a sparse "
            "vector. Split it into smaller chunks."
        )
        raise InvalidParameterError(msg)
    return weights


def sparse_question(analyzer: Analyzer, text: str) -> dict[int, float]:
    """Return the counts of a question's terms, by their hashes; the thousand most frequent."""
    return dict(islice(question_weights(analyzer.query_terms(text)).items(), MOST_VALUES))
