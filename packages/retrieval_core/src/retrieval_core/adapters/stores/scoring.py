"""Scores of many chunks at once: cosines, BM25, and the best of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from math import log
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.adapters.stores.query_terms import K1, B

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from retrieval_core.types import Matrix, Vector

FEW = 3
"""Where fewer than one row in this many match, copying them is cheaper than scoring all rows."""
ROWS_OF_A_THREAD = 25_000
"""The fewest rows that are worth a thread: with half of 50,000 each, two take 1.9 ms where one takes 4.0."""
BLOCKS_FOR_EACH = 8
"""Of the scores, as many blocks as this times the limit are looked at by their maximum."""
LEAST_WEIGHT = 1e-6
"""The weight of a term that more than half of the chunks have, which would otherwise count against them, as in FTS5."""
FEWEST_IN_A_BLOCK = 4
"""Scores of smaller blocks are partitioned at once: of 1,000 in 3 to 10 µs, and by blocks in 20."""


def cosines(matrix: Matrix, rows: NDArray[np.intp] | None, query: Vector) -> Matrix:
    """Return the cosines of a query with some rows of a matrix, all of unit length; with all rows for ``None``."""
    if rows is None or len(rows) == len(matrix):
        scores = products(matrix, query)
    elif len(rows) * FEW < len(matrix):
        scores = products(matrix[rows], query)
    else:
        scores = products(matrix, query)[rows]
    return np.clip(scores, -1.0, 1.0)


def products(matrix: Matrix, query: Vector) -> Matrix:
    """Return the product of each row with the query; those of many rows are computed on several processors.

    One dot product a row instead of one product of matrix and vector: BLAS then starts no threads (whose hand-over
    costs milliseconds on busy cores), and equal rows get equal scores to the bit.
    """
    if len(matrix) < 2 * ROWS_OF_A_THREAD:  # asking for the number of processors takes as long as 1,000 rows
        return _dots(matrix, query)
    parts = min(os.cpu_count() or 1, len(matrix) // ROWS_OF_A_THREAD)
    if parts < 2:
        return _dots(matrix, query)
    with ThreadPoolExecutor(parts - 1, thread_name_prefix="sqlite-products") as threads:
        first, *others = np.array_split(matrix, parts)
        pending = [threads.submit(_dots, part, query) for part in others]
        return np.concatenate([_dots(first, query), *(each.result() for each in pending)])


def _dots(matrix: Matrix, query: Vector) -> Matrix:
    return (matrix[:, np.newaxis, :] @ query[:, np.newaxis])[:, 0, 0]


def length_norms(lengths: NDArray[Any], mean: float) -> NDArray[np.float64]:
    """Return BM25's normalisation of chunks by their lengths in terms.

    Args:
        mean: The mean length of the chunks of the index; 0 if they have no terms.
    """
    return K1 * (1 - B + B * lengths / (mean or 1.0))


def saturated(frequencies: NDArray[Any], norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return BM25's weights of a term's frequencies in chunks, without the term's own weight."""
    return frequencies * (K1 + 1) / (frequencies + norms)


def weight_of(chunks: int, count: int) -> float:
    """Return BM25's weight of a term that some of the chunks have."""
    weight = log((chunks - count + 0.5) / (count + 0.5)) if count else 0.0
    return weight if weight > 0 else LEAST_WEIGHT


def best_rows(scores: NDArray[np.floating], limit: int) -> NDArray[np.intp]:
    """Return the rows of the highest scores, in any order: more than the limit where several have the last one's score.

    At least as many scores as the limit reach the limit-th highest maximum of blocks of them: so only those that do are
    partitioned, which takes less than a fifth of the time for partitioning all.
    """
    size = len(scores) // (limit * BLOCKS_FOR_EACH)
    if size >= FEWEST_IN_A_BLOCK:
        maxima = scores[: len(scores) // size * size].reshape(-1, size).max(axis=1)
        rows = np.flatnonzero(scores >= _nth(maxima, limit))
        return rows[scores[rows] >= _nth(scores[rows], limit)]
    if len(scores) > limit:
        return np.flatnonzero(scores >= _nth(scores, limit))
    return np.arange(len(scores))


def _nth(scores: NDArray[np.floating], place: int) -> np.floating:
    """Return the score that is highest but for ``place - 1`` others."""
    return np.partition(scores, len(scores) - place)[len(scores) - place]
