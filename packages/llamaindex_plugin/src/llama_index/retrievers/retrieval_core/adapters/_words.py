"""Search by words, with BM25, over passages in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from math import log
from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.query_terms import K1, B, query_terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.text.analysis import Analyzer


class WordIndex:
    """An inverted index, which scores as :class:`~retrieval_core.adapters.stores.memory.MemoryStore` does.

    A question looks at the passages that have one of its words, and not at all of them.

    Args:
        analyzer: Turns a question into terms.
        passages: How often each passage has each term, by the passage's id.
    """

    def __init__(self, analyzer: Analyzer, passages: Mapping[str, Counter[str]]) -> None:
        self._analyzer = analyzer
        lengths = {name: terms.total() for name, terms in passages.items()}
        average = sum(lengths.values()) / max(1, len(lengths)) or 1.0
        self._norms = {name: K1 * (1 - B + B * length / average) for name, length in lengths.items()}
        self._postings: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for name, terms in passages.items():
            for term, count in terms.items():
                self._postings[term][name] = count

    def search(self, text: str) -> list[tuple[str, float]]:
        """Return the ids of all passages with a word of the question, and their BM25 scores above 0, best first.

        Equal scores are ordered by id.
        """
        scores: defaultdict[str, float] = defaultdict(float)
        for term, repeats in Counter(query_terms(self._analyzer, text, self._count)).items():
            counts = self._postings.get(term, {})
            weight = repeats * log(1 + (len(self._norms) - len(counts) + 0.5) / (len(counts) + 0.5))
            for name, count in counts.items():
                scores[name] += weight * count * (K1 + 1) / (count + self._norms[name])
        return sorted(scores.items(), key=lambda item: (-item[1], item[0]))

    def _count(self, term: str) -> int:
        return len(self._postings.get(term, {}))
