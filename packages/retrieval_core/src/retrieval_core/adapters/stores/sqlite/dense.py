"""Exact vector search: the cosine with every row; quantized rows select those that are worth it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import numpy as np

from retrieval_core.adapters.stores.checks import unit_rows
from retrieval_core.adapters.stores.local import Match
from retrieval_core.adapters.stores.scoring import best_rows, cosines, products
from retrieval_core.adapters.stores.sqlite.read import vectors_of

if TYPE_CHECKING:
    from sqlite3 import Connection

    from numpy.typing import NDArray

    from retrieval_core.adapters.stores.sqlite.snapshot import Rows, Snapshot
    from retrieval_core.types import Matrix, Vector

RESCORED = 4
"""Of quantized vectors, so many times the limit are compared exactly."""
ROWS_AT_ONCE = 256
"""Quantized rows that are made to floating-point numbers at a time, so that these stay in the processor's cache."""


def search_vectors(connection: Connection, snapshot: Snapshot, query: Vector, limit: int) -> list[Match]:
    """Return the chunks with the highest cosine, best first; equal ones are ordered by chunk id."""
    query = unit_rows(query)
    rows = np.flatnonzero(snapshot.passing)
    if not len(rows):
        return []
    if snapshot.scales is None:
        scores = cosines(cast("Matrix", snapshot.matrix), rows, query)
    else:
        rows = rows[best_rows(_estimates(snapshot.matrix, snapshot.scales, rows, query), limit * RESCORED)]
        exact = vectors_of(connection, snapshot.numbers[rows].tolist())
        scores = cosines(np.stack([exact[number] for number in snapshot.numbers[rows].tolist()]), None, query)
    found = best_rows(scores, limit)
    return matches_of(connection, snapshot.numbers[rows[found]], scores[found], limit)


def matches_of(
    connection: Connection, numbers: NDArray[np.int64], scores: NDArray[np.floating], limit: int
) -> list[Match]:
    """Return the chunks with some numbers, best first; equal scores are ordered by chunk id."""
    score_of = dict(zip(numbers.tolist(), scores.tolist(), strict=True))
    names = connection.execute(
        "SELECT number, id FROM chunks WHERE number IN (SELECT value FROM json_each(?))", (json.dumps(list(score_of)),)
    )
    ordered = sorted([(-score_of[number], name, number) for number, name in names])[:limit]
    return [Match(number, name, -negated) for negated, name, number in ordered]


def _estimates(matrix: Rows, scales: NDArray[np.float32], rows: NDArray[np.intp], query: Vector) -> NDArray[np.float32]:
    """Return about the cosine of each row."""
    scores = np.empty(len(rows), dtype=np.float32)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        part = rows[start : start + ROWS_AT_ONCE]
        scores[start : start + ROWS_AT_ONCE] = products(matrix[part].astype(np.float32), query)
    return scores * scales[rows]
