"""A passage that somebody expected among the results of a search: where it came, or why it did not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from retrieval_core_mcp.fitting import in_one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from retrieval_core.types import Hit, RetrievalResult

NOT_FOUND = "Neither side finds it: it has none of the words, and is not near in meaning."
DEEPEST = 1_000
"""Results that are searched for a chunk that is not among those that were asked for."""
_LONGEST_NOTE = 160


@dataclass(frozen=True, slots=True)
class ExpectedPassage:
    """What became of a passage.

    Attributes:
        why: In a sentence.
        hit: With its scores; ``None`` if the query does not find it at all. Without a rank it has only the scores that
            compare the chunk itself with the query: ranks, and scores made of them, would be those of another search.
        rank: From 1, also after the results that were asked for; ``None`` if it is not among any.
    """

    why: str
    hit: Hit | None = None
    rank: int | None = None


def among(found: RetrievalResult, chunk_id: str) -> ExpectedPassage | None:
    """Return the place of a passage among results; ``None`` where it has none."""
    for rank, hit in enumerate(found.hits, 1):
        if hit.id == chunk_id:
            return ExpectedPassage(f"It came as number {rank}.", hit, rank)
    return None


async def why_not(
    chunk_id: str,
    found: RetrievalResult,
    search: Callable[[Mapping[str, Any] | None, int], Awaitable[RetrievalResult]],
    filters: Mapping[str, Any] | None,
    *,
    asked: int,
    candidates: int,
) -> ExpectedPassage:
    """Return why a chunk of the index is not among results.

    Args:
        found: The results.
        search: Repeats the search, with a filter and a number of results.
        filters: Those of the query.
        asked: How many results were asked for.
        candidates: How many candidates of each side the search fused: so many results are in the order of that search.

    Raises:
        RetrievalError: As searching.
    """
    searched = len(found.hits)
    for depth in dict.fromkeys((max(asked, min(candidates, DEEPEST)), max(asked, DEEPEST))):
        if depth == asked:
            continue
        deeper = await search(filters, depth)
        searched = len(deeper.hits)
        if (place := among(deeper, chunk_id)) is not None:
            return ExpectedPassage(f"Its rank is {place.rank}, and top_k is {asked}.", place.hit, place.rank)
        if searched < depth:
            break
    own = {"id": {"$eq": chunk_id}}
    alone = await search({"$and": [own, filters]} if filters else own, 1)
    if alone.hits and alone.hits[0].id == chunk_id:
        return ExpectedPassage(f"It is not among the first {searched:,} results.", _measured(alone.hits[0]))
    if filters and (await search(own, 1)).hits:
        return ExpectedPassage("The filter excludes it.")
    dropped = [
        f"The stage {record.stage} left it out: {in_one_line(item.reason, _LONGEST_NOTE) or f'score {item.score:.3g}'}."
        for record in (*found.trace, *alone.trace)
        for item in record.dropped
        if item.id == chunk_id
    ]
    return ExpectedPassage(dropped[0] if dropped else NOT_FOUND)


def _measured(hit: Hit) -> Hit:
    """Return a hit with only the scores that do not depend on other hits."""
    return replace(
        hit, scores=replace(hit.scores, dense_rank=None, lexical_rank=None, fused=None, mmr=None, final=None)
    )
