"""Several vectors of a chunk, such as those of its text and of its title, become one dense score.

======== ===============================================================================================================
mean     the mean of the cosines, weighted; a chunk that a vector's search did not find counts with the lowest score
         that this search gave, which is the most that it can have
max      the highest of the cosines, each times its weight
======== ===============================================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.ports import Candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

VectorRule: TypeAlias = Literal["mean", "max"]


def combine_vectors(
    sides: Sequence[tuple[Sequence[Candidate], float]], rule: VectorRule, limit: int | None = None
) -> tuple[Candidate, ...]:
    """Put what the searches of several vectors found into one order, each chunk once.

    Args:
        sides: What each vector's search found, best first, and its weight above 0.
        rule: See the module's documentation.
        limit: How many are wanted; all of them where it is not given.

    Returns:
        Best first; equal scores are ordered by chunk id. A chunk comes along where one of the searches brought it.
    """
    found = {candidate.chunk_id for side, _ in sides for candidate in side}
    chunks = {item.chunk_id: item.chunk for side, _ in sides for item in side if item.chunk is not None}
    scores = [({candidate.chunk_id: candidate.score for candidate in side}, weight) for side, weight in sides]
    if rule == "max":
        combined = {
            name: max(weight * cosines[name] for cosines, weight in scores if name in cosines) for name in found
        }
    else:
        total = sum(weight for _, weight in sides)
        lowest = [min(cosines.values(), default=0.0) for cosines, _ in scores]
        combined = {
            name: sum(weight * cosines.get(name, low) for (cosines, weight), low in zip(scores, lowest, strict=True))
            / total
            for name in found
        }
    order = sorted(combined, key=lambda name: (-combined[name], name))[:limit]
    return tuple([Candidate(name, combined[name], chunks.get(name)) for name in order])
