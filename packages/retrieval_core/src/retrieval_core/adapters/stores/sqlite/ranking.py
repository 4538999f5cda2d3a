"""The best of many scores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.adapters.stores.local import Match

if TYPE_CHECKING:
    from sqlite3 import Connection

    from numpy.typing import NDArray

    Scores = NDArray[np.floating]

BLOCKS_FOR_EACH = 8
"""Of the scores, as many blocks as this times the limit are looked at by their maximum."""


def best_rows(scores: Scores, limit: int) -> NDArray[np.intp]:
    """Return the rows of the highest scores, in any order: more than the limit where several have the last one's score.

    At least as many scores as the limit reach the limit-th highest maximum of blocks of them: so only those that do are
    partitioned, which takes less than a fifth of the time for partitioning all.
    """
    size = len(scores) // (limit * BLOCKS_FOR_EACH)
    if size > 1:
        maxima = scores[: len(scores) // size * size].reshape(-1, size).max(axis=1)
        rows = np.flatnonzero(scores >= _nth(maxima, limit))
        return rows[scores[rows] >= _nth(scores[rows], limit)]
    if len(scores) > limit:
        return np.flatnonzero(scores >= _nth(scores, limit))
    return np.arange(len(scores))


def matches_of(connection: Connection, numbers: NDArray[np.int64], scores: Scores, limit: int) -> list[Match]:
    """Return the chunks with some numbers, best first; equal scores are ordered by chunk id."""
    score_of = dict(zip(numbers.tolist(), scores.tolist(), strict=True))
    names = connection.execute(
        "SELECT number, id FROM chunks WHERE number IN (SELECT value FROM json_each(?))", (json.dumps(list(score_of)),)
    )
    ordered = sorted([(-score_of[number], name, number) for number, name in names])[:limit]
    return [Match(number, name, -negated) for negated, name, number in ordered]


def _nth(scores: Scores, place: int) -> np.floating:
    """Return the score that is highest but for ``place - 1`` others."""
    return np.partition(scores, len(scores) - place)[len(scores) - place]
