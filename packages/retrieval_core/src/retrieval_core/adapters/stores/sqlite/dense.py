"""Exact dense search: the cosine with every row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.adapters.stores.checks import unit_rows
from retrieval_core.adapters.stores.sqlite.ranking import best_rows, matches_of

if TYPE_CHECKING:
    from sqlite3 import Connection

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.local import Match
    from retrieval_core.adapters.stores.sqlite.snapshot import Snapshot
    from retrieval_core.types import Matrix, Vector

FEW = 3
"""Where fewer than one row in this many match, copying them is cheaper than scoring all rows."""


def search_vectors(connection: Connection, snapshot: Snapshot, query: Vector, limit: int) -> list[Match]:
    """Return the chunks with the highest cosine, best first; equal ones are ordered by chunk id."""
    rows = np.flatnonzero(snapshot.passing)
    scores = _cosines(snapshot.matrix, rows, unit_rows(query))
    found = best_rows(scores, limit)
    return matches_of(connection, snapshot.numbers[rows[found]], scores[found], limit)


def _cosines(matrix: Matrix, rows: NDArray[np.intp], query: Vector) -> Matrix:
    if len(rows) * FEW < len(matrix):
        return _products(matrix[rows], query)
    scores = _products(matrix, query)
    return scores if len(rows) == len(matrix) else scores[rows]


def _products(matrix: Matrix, query: Vector) -> Matrix:
    """Return the product of each row with the query, in [-1, 1].

    One dot product a row instead of one product of matrix and vector: as fast, since memory is the limit, but BLAS then
    starts no threads (whose hand-over costs milliseconds on busy cores), and equal rows get equal scores to the bit.
    """
    products = (matrix[:, np.newaxis, :] @ query[:, np.newaxis])[:, 0, 0]
    return np.clip(products, -1.0, 1.0)
