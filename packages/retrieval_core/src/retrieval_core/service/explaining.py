"""Explain a search: the scores and stages of its results, and why an expected chunk is not among them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from retrieval_core.errors import InvalidParameterError
from retrieval_core.service.reading import ChunkRequest, Id, read_chunk
from retrieval_core.service.searching import Query, SearchRequest, WithFallback, search

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import Hit, RetrievalResult, Span

DEEPEST = 1_000
"""Results that are searched for a chunk that is not among those that were asked for."""
NOT_FOUND = "Neither side finds it: it has none of the words, and its embedding is not near."
_LONGEST_NOTE = 160


class ExplainRequest(Query):
    """A search to explain."""

    id: Annotated[Id | None, Field(description="ID of a chunk that was expected among the results")] = None
    with_fallback: WithFallback = True


@dataclass(frozen=True, slots=True)
class ExpectedChunk:
    """What became of an expected chunk.

    Attributes:
        why: In a sentence.
        hit: With its scores; ``None`` if the query does not find it at all. Without a rank it has only the scores that
            compare the chunk itself with the query: ranks, and scores made of them, would be those of another search.
        rank: From 1, also after the results that were asked for; ``None`` if it is not among any.
    """

    why: str
    hit: Hit | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a search did.

    Attributes:
        result: With the records of all stages.
        highlights: For each hit, where words of the query are in its text.
        expected: What became of the chunk that was expected; ``None`` if none was.
        deadline_ms: When all stages have to end, in milliseconds from the start; ``None`` without a deadline.
    """

    result: RetrievalResult
    highlights: tuple[tuple[Span, ...], ...]
    expected: ExpectedChunk | None
    deadline_ms: float | None


async def explain(context: ServiceContext, request: ExplainRequest) -> Explanation:
    """Search without the cache, and say what each stage did and what became of the expected chunk.

    Raises:
        NotFoundError: There is no index of that name, or no such chunk that the caller may see.
        InvalidParameterError: A chunk is expected of several indexes.
        RetrievalError: As :meth:`retrieval_core.Index.aretrieve`.
    """
    if request.id is not None and len(request.indexes or ()) > 1:
        msg = "a chunk is expected of one index: with its ID, name index and not indexes"
        raise InvalidParameterError(msg)
    served = context.index(request.index if request.indexes is None else request.indexes[0])
    settings = (await served.index()).config
    asked = request.top_k or settings.search.top_k

    async def find(filters: Mapping[str, Any] | None, top_k: int) -> RetrievalResult:
        fields = {name: getattr(request, name) for name in Query.model_fields}
        fields |= {"filters": dict(filters) if filters else None, "top_k": top_k}
        again = SearchRequest(**fields, with_fallback=request.with_fallback, with_trace=True, use_cache=False)
        return await search(context, again)

    found = await find(request.filters, asked)
    analyzer = await served.analyzer()
    spans = await asyncio.to_thread(
        lambda: tuple(tuple(analyzer.highlight_spans(found.query, hit.chunk.text)) for hit in found.hits)
    )
    expected = None
    if request.id is not None:
        expected = _place(found, request.id)
        if expected is None:
            await read_chunk(context, ChunkRequest(id=request.id, index=request.index))
            expected = await _why_not(
                request, request.id, found, find, asked=asked, candidates=settings.search.candidates
            )
    deadline = settings.deadline_seconds
    return Explanation(found, spans, expected, None if deadline is None else deadline * 1000)


def _place(found: RetrievalResult, chunk_id: str) -> ExpectedChunk | None:
    """Return the rank of a chunk among results; ``None`` if it is not among them."""
    for rank, hit in enumerate(found.hits, 1):
        if hit.id == chunk_id:
            return ExpectedChunk(f"It came as number {rank}.", hit, rank)
    return None


async def _why_not(
    request: ExplainRequest,
    chunk_id: str,
    found: RetrievalResult,
    find: Callable[[Mapping[str, Any] | None, int], Awaitable[RetrievalResult]],
    *,
    asked: int,
    candidates: int,
) -> ExpectedChunk:
    """Return why a chunk of the index is not among results.

    Args:
        found: The results.
        find: Repeats the search, with a filter and a number of results.
        asked: How many results were asked for.
        candidates: Candidates of each side that the search fused: so many results are in the order of that search.
    """
    searched = len(found.hits)
    for depth in dict.fromkeys((max(asked, min(candidates, DEEPEST)), max(asked, DEEPEST))):
        if depth == asked:
            continue
        deeper = await find(request.filters, depth)
        searched = len(deeper.hits)
        if (place := _place(deeper, chunk_id)) is not None:
            return ExpectedChunk(f"Its rank is {place.rank}, and top_k is {asked}.", place.hit, place.rank)
        if searched < depth:
            break
    own = {"id": {"$eq": chunk_id}}
    alone = await find({"$and": [own, request.filters]} if request.filters else own, 1)
    if alone.hits and alone.hits[0].id == chunk_id:
        return ExpectedChunk(f"It is not among the first {searched:,} results.", _measured(alone.hits[0]))
    if request.filters and (await find(own, 1)).hits:
        return ExpectedChunk("The filter excludes it.")
    dropped = [
        f"The stage {record.stage} left it out: {item.reason[:_LONGEST_NOTE] or f'score {item.score:.3g}'}."
        for record in (*found.trace, *alone.trace)
        for item in record.dropped
        if item.id == chunk_id
    ]
    return ExpectedChunk(dropped[0] if dropped else NOT_FOUND)


def _measured(hit: Hit) -> Hit:
    """Return a hit with only the scores that do not depend on other hits."""
    return replace(
        hit, scores=replace(hit.scores, dense_rank=None, lexical_rank=None, fused=None, mmr=None, final=None)
    )
