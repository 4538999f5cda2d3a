"""Exact lexical search by BM25: all postings of the question's terms are added up."""

from __future__ import annotations

from collections import Counter
from math import log
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from retrieval_core.adapters.stores.scoring import best_rows, length_norms, saturated
from retrieval_core.adapters.stores.sqlite.damage import count_chunks
from retrieval_core.adapters.stores.sqlite.dense import matches_of
from retrieval_core.adapters.stores.sqlite.postings import read_segments, read_stale
from retrieval_core.ports import TermCounts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from sqlite3 import Connection

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.local import Match
    from retrieval_core.adapters.stores.sqlite.snapshot import Snapshot

    Rows: TypeAlias = NDArray[np.int32]
    _Found: TypeAlias = tuple[Rows, NDArray[np.unsignedinteger]]

LEAST_WEIGHT = 1e-6
"""The weight of a term that more than half of the chunks have, which would otherwise count against them, as in FTS5."""
CACHED_BYTES = 64 * 1024 * 1024
"""The most memory for the postings of terms that were searched for."""
ENTRY_BYTES = 400
"""What the entry of a term takes, beside its postings."""


class InvertedIndex:
    """The words of an index at one state: a row for each chunk. Several threads may search it.

    Args:
        connection: Its open transaction is at that state.
        most_bytes: The most memory for the postings of terms that were searched for.

    Attributes:
        numbers: The chunks' numbers, ascending; some of the chunks may be removed.
        chunks: How many chunks have postings.
        missing: How many chunks should have postings and have none.

    Raises:
        DamagedError: The words are damaged.
    """

    def __init__(self, connection: Connection, most_bytes: int = CACHED_BYTES) -> None:
        self._segments = read_segments(connection)
        self._begins = np.cumsum([0, *(len(segment.numbers) for segment in self._segments)])[:-1].tolist()
        self.numbers = np.concatenate([np.zeros(0, np.int64), *(segment.numbers for segment in self._segments)])
        lengths = np.concatenate([np.zeros(0, np.uint32), *(segment.lengths for segment in self._segments)])
        stale = read_stale(connection)
        self._alive = ~np.isin(self.numbers, stale) if len(stale) else None
        counted = lengths if self._alive is None else lengths[self._alive]
        self.chunks = len(counted)
        self.missing = count_chunks(connection) - len(counted)
        self._norms = length_norms(lengths, float(counted.mean()) if len(counted) else 0.0)
        self._lock = Lock()
        self._postings: dict[str, _Found] = {}
        self._most_bytes = most_bytes
        self._cached_bytes = 0

    @property
    def loaded_bytes(self) -> int:
        """Bytes of all arrays; read without a lock."""
        return self.numbers.nbytes + self._norms.nbytes + self._cached_bytes

    def search(
        self, connection: Connection, terms: Sequence[str], limit: int, allowed: Snapshot | None = None
    ) -> list[Match]:
        """Return the best chunks by BM25, best first; equal scores are ordered by chunk id.

        Args:
            terms: Each counts as often as it is repeated.
            allowed: The chunks that match the filter.
        """
        scores = np.zeros(len(self.numbers))
        for term, repeats in Counter(terms).items():
            rows, frequencies = self._find(connection, term)
            scores[rows] += repeats * weight_of(self.chunks, len(rows)) * saturated(frequencies, self._norms[rows])
        if allowed is not None:
            scores *= self._passing(allowed)
        rows = best_rows(scores, limit)
        rows = rows[scores[rows] > 0]
        return matches_of(connection, self.numbers[rows], scores[rows], limit) if len(rows) else []

    def count_chunks(self, connection: Connection, term: str) -> int:
        """Return how many chunks contain a term."""
        return len(self._find(connection, term)[0])

    def count_terms(self, connection: Connection, terms: Sequence[str], allowed: Snapshot | None) -> TermCounts:
        """Return how many chunks there are, and how many of them contain each term.

        Args:
            allowed: The chunks that match the filter; only these count.
        """
        if allowed is None:
            return TermCounts(self.chunks, {term: len(self._find(connection, term)[0]) for term in terms})
        passing = self._passing(allowed)
        having = {term: int(np.count_nonzero(passing[self._find(connection, term)[0]])) for term in terms}
        return TermCounts(int(np.count_nonzero(passing)), having)

    def _find(self, connection: Connection, term: str) -> _Found:
        """Return the rows of the chunks that have a term, and how often each has it."""
        known = self._postings.get(term)
        if known is None:
            known = self._read(connection, term)
            with self._lock:
                self._postings[term] = known
                self._cached_bytes += _bytes_of(known)
                while self._cached_bytes > self._most_bytes:
                    self._cached_bytes -= _bytes_of(self._postings.pop(next(iter(self._postings))))
        return known

    def _read(self, connection: Connection, term: str) -> _Found:
        rows: list[Rows] = [np.zeros(0, np.int32)]
        frequencies: list[NDArray[np.unsignedinteger]] = [np.zeros(0, np.uint8)]
        for segment, begin in zip(self._segments, self._begins, strict=True):
            if found := segment.find(connection, term):
                rows.append(found[0].astype(np.int32) + np.int32(begin))
                frequencies.append(found[1])
        joined, counts = np.concatenate(rows), np.concatenate(frequencies)
        if self._alive is None:
            return joined, counts
        alive = self._alive[joined]
        return joined[alive], counts[alive]

    def _passing(self, allowed: Snapshot) -> NDArray[np.bool_]:
        """Return which rows are among the chunks of a snapshot that match its filter."""
        if np.array_equal(allowed.numbers, self.numbers):
            return allowed.passing
        passing = allowed.numbers[allowed.passing]
        passes = np.zeros(1 + max([0, *passing[-1:].tolist(), *self.numbers[-1:].tolist()]), np.bool_)
        passes[passing] = True
        return passes[self.numbers]


def weight_of(chunks: int, count: int) -> float:
    """Return BM25's weight of a term that some of the chunks have."""
    weight = log((chunks - count + 0.5) / (count + 0.5)) if count else 0.0
    return weight if weight > 0 else LEAST_WEIGHT


def _bytes_of(found: _Found) -> int:
    return found[0].nbytes + found[1].nbytes + ENTRY_BYTES
