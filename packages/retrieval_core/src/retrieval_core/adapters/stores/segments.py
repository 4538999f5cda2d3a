"""Segments of postings: which of them a store merges, so that they stay few and no chunk is merged often."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FANOUT = 8
"""How many times as large as those that it is made of a merged segment is, about."""
MOST_STALE = 4
"""A segment is rewritten when more than one of this many of its chunks are removed."""


def small_segments(sizes: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return the ids of the last segments, from the first on that is not :data:`FANOUT` times as large as the rest.

    Args:
        sizes: As of :func:`segments_to_merge`.
    """
    rest = 0
    small = 0
    for place, (_, chunks, _) in enumerate(reversed(sizes), start=1):
        if chunks < FANOUT * rest:
            small = place
        rest += chunks
    return [name for name, _, _ in sizes[len(sizes) - small :]]


def segments_to_merge(sizes: Sequence[tuple[int, int, int]]) -> set[int]:
    """Return the ids of segments to merge now.

    Every neighbour in a run is of at most some tier, and all together reach the next one: so each merge lifts all of
    its chunks to a higher tier.

    Args:
        sizes: Id, number of chunks, and how many of these are removed, of each segment in order.
    """
    for name, chunks, stale in sizes:
        if stale * MOST_STALE > chunks:
            return {name}
    limit = 1
    while limit <= sum(chunks for _, chunks, _ in sizes):
        limit *= FANOUT
        run: list[int] = []
        total = 0
        for name, chunks, _ in (*sizes, (0, limit, 0)):
            if chunks < limit:
                run.append(name)
                total += chunks
            elif total >= limit:
                return set(run)
            else:
                run, total = [], 0
    return set()
