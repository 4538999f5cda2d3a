"""Keyword search with BM25, over texts in memory that come and go."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from functools import partial
from itertools import groupby
from math import log
from operator import itemgetter
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.adapters.stores.held import count_terms_of
from retrieval_core.adapters.stores.query_terms import query_terms
from retrieval_core.adapters.stores.scoring import length_norms, saturated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from retrieval_core.text.analysis import Analyzer

ADDED_AT_ONCE = 1000
"""How many texts are analysed and added at a time: all terms of these are in memory."""


class WordIndex:
    """An inverted index, which scores as :class:`~retrieval_core.adapters.stores.memory.MemoryStore` does.

    Adding or removing a text takes as long as it has words. A removed one keeps its row, which counts no longer.
    """

    def __init__(self, analyzer: Analyzer) -> None:
        self._analyzer = analyzer
        self._lock = Lock()
        self._names: list[str] = []
        self._row_of: dict[str, int] = {}
        self._lengths = array("I")
        self._is_there = bytearray()
        self._postings: defaultdict[str, array[int]] = defaultdict(partial(array, "I"))

    def update(self, removed: Iterable[str], added: Mapping[str, str]) -> None:
        """Remove texts by their names, and add others, whose names are none of those that are left."""
        with self._lock:
            for name in removed:
                self._is_there[self._row_of.pop(name)] = False
        names = [*added]
        for begin in range(0, len(names), ADDED_AT_ONCE):
            self._add({name: self._analyzer.terms(added[name]) for name in names[begin : begin + ADDED_AT_ONCE]})

    def _add(self, terms_of: Mapping[str, Sequence[str]]) -> None:
        terms, counts, positions, frequencies = count_terms_of([*terms_of.values()])
        with self._lock:
            begin = len(self._names)
            pairs = np.column_stack((positions + begin, frequencies)).astype(np.uint32)
            ends = np.cumsum(counts).tolist()
            for term, first, end in zip(terms, [0, *ends], ends, strict=False):
                self._postings[term].frombytes(pairs[first:end].tobytes())
            self._row_of |= {name: row for row, name in enumerate(terms_of, begin)}
            self._names += terms_of
            self._lengths.extend(map(len, terms_of.values()))
            self._is_there.extend(b"\1" * len(terms_of))

    @property
    def waste(self) -> float:
        """The part of the rows that counts no longer, in [0, 1]."""
        return 1 - len(self._row_of) / max(1, len(self._names))

    def search(self, text: str) -> Iterator[tuple[str, float]]:
        """Yield the names of all texts with a word of the query and their scores, best first; equal ones by name."""
        with self._lock:
            scores = self._scores(text)
        rows = np.flatnonzero(scores)
        rows = rows[np.argsort(-scores[rows], kind="stable")]
        found = zip(scores[rows].tolist(), map(self._names.__getitem__, rows.tolist()), strict=True)
        for score, equal in groupby(found, key=itemgetter(0)):
            yield from ((name, score) for name in sorted(map(itemgetter(1), equal)))

    def _scores(self, text: str) -> NDArray[np.float64]:
        is_there = np.array(self._is_there, dtype=np.bool_)
        lengths = np.array(self._lengths)
        scores = np.zeros(len(lengths))
        count = len(self._row_of)
        norms = length_norms(lengths, lengths[is_there].sum() / max(1, count))

        def postings(term: str) -> NDArray[np.uint32]:
            found = np.array(self._postings.get(term, ()), dtype=np.uint32).reshape(-1, 2)
            return found[is_there[found[:, 0]]]

        for term, repeats in Counter(query_terms(self._analyzer, text, lambda term: len(postings(term)))).items():
            rows, counts = postings(term).T
            weight = repeats * log(1 + (count - len(rows) + 0.5) / (len(rows) + 0.5))
            scores[rows] += weight * saturated(counts, norms[rows])
        return scores
