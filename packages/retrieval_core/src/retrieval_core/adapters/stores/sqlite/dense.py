"""Exact dense search: the cosine with every row; quantized rows say which ones are worth it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import numpy as np

from retrieval_core.adapters.stores.checks import unit_rows
from retrieval_core.adapters.stores.sqlite.ranking import best_rows, matches_of
from retrieval_core.adapters.stores.sqlite.read import vectors_of

if TYPE_CHECKING:
    from sqlite3 import Connection

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.local import Match
    from retrieval_core.adapters.stores.sqlite.snapshot import Rows, Snapshot
    from retrieval_core.types import Matrix, Vector

FEW = 3
"""Where fewer than one row in this many match, copying them is cheaper than scoring all rows."""
RESCORED = 4
"""Of quantized vectors, so many times the limit are compared exactly."""
ROWS_AT_ONCE = 256
"""Quantized rows that are made to floating-point numbers at a time, so that these stay in the processor's cache."""

ROWS_OF_A_THREAD = 25_000
"""The fewest rows that are worth a thread: with half of 50,000 each, two take 1.9 ms where one takes 4.0."""


def search_vectors(connection: Connection, snapshot: Snapshot, query: Vector, limit: int) -> list[Match]:
    """Return the chunks with the highest cosine, best first; equal ones are ordered by chunk id."""
    query = unit_rows(query)
    rows = np.flatnonzero(snapshot.passing)
    if not len(rows):
        return []
    if snapshot.scales is None:
        scores = _cosines(cast("Matrix", snapshot.matrix), rows, query)
    else:
        rows = rows[best_rows(_estimates(snapshot.matrix, snapshot.scales, rows, query), limit * RESCORED)]
        exact = vectors_of(connection, snapshot.numbers[rows].tolist())
        scores = _products(np.stack([exact[number] for number in snapshot.numbers[rows].tolist()]), query)
    scores = np.clip(scores, -1.0, 1.0)
    found = best_rows(scores, limit)
    return matches_of(connection, snapshot.numbers[rows[found]], scores[found], limit)


def _cosines(matrix: Matrix, rows: NDArray[np.intp], query: Vector) -> Matrix:
    if len(rows) * FEW < len(matrix):
        return _products(matrix[rows], query)
    scores = _products(matrix, query)
    return scores if len(rows) == len(matrix) else scores[rows]


def _estimates(matrix: Rows, scales: NDArray[np.float32], rows: NDArray[np.intp], query: Vector) -> NDArray[np.float32]:
    """Return about the cosine of each row."""
    scores = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        scores[start : start + ROWS_AT_ONCE] = _products(matrix[part].astype(np.float32), query)
    return scores * scales[rows]


def _products(matrix: Matrix, query: Vector) -> Matrix:
    """Return the product of each row with the query; those of many rows are computed on several processors.

    One dot product a row instead of one product of matrix and vector: BLAS then starts no threads (whose hand-over
    costs milliseconds on busy cores), and equal rows get equal scores to the bit.
    """
    parts = min(os.cpu_count() or 1, len(matrix) // ROWS_OF_A_THREAD)
    if parts < 2:
        return _dots(matrix, query)
    with ThreadPoolExecutor(parts - 1, thread_name_prefix="sqlite-products") as threads:
        first, *others = np.array_split(matrix, parts)
        products = [threads.submit(_dots, part, query) for part in others]
        return np.concatenate([_dots(first, query), *(each.result() for each in products)])


def _dots(matrix: Matrix, query: Vector) -> Matrix:
    return (matrix[:, np.newaxis, :] @ query[:, np.newaxis])[:, 0, 0]
