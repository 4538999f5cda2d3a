"""Explain a search: the scores and stages of its results, and why an expected chunk is not among them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from retrieval_core.errors import InvalidParameterError
from retrieval_core.service.reading import ChunkRequest, Id, read_chunk
from retrieval_core.service.searching import QueryRequest, SearchIndexRequest, WithFallback, search

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Chunk, Hit, RetrievalResult, Span

DEEPEST = 1_000
"""Results among which an expected chunk is looked up."""
NOT_FOUND = "Neither search finds it: it contains none of the terms, and its embedding is not similar."
_LONGEST_NOTE = 160


class ExplainRequest(QueryRequest):
    """A query whose search is explained."""

    id: Annotated[Id | None, Field(description="ID of a chunk that you expected among the results")] = None
    with_fallback: WithFallback = True


@dataclass(frozen=True, slots=True)
class ExpectedChunk:
    """The rank of an expected chunk, or why it isn't among the results.

    Attributes:
        why: One sentence.
        hit: The chunk with its scores; ``None`` if the query doesn't find it. Without a rank it has only scores that
            compare the chunk itself with the query.
        rank: Rank from 1, which may be larger than ``top_k``; ``None`` if it has none.
    """

    why: str
    hit: Hit | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The results and stages of a search.

    Attributes:
        result: The result, with the records of all stages.
        highlights: For each hit, the positions of words of the query in its text.
        heading_words: For each hit, the words of its title and headings that the query contains, each once.
        expected: The rank of the expected chunk, or why it has none; ``None`` if the request names no chunk.
        deadline_ms: Deadline of the search, in milliseconds from its start; ``None`` if there is none.
    """

    result: RetrievalResult
    highlights: tuple[tuple[Span, ...], ...]
    heading_words: tuple[tuple[str, ...], ...]
    expected: ExpectedChunk | None
    deadline_ms: float | None


async def explain(context: ServiceContext, request: ExplainRequest) -> Explanation:
    """Search without the cache, and return the record of each stage and the rank of an expected chunk.

    Raises:
        NotFoundError: There is no index of that name, or no such chunk that the caller may see.
        InvalidParameterError: The request names a chunk and several indexes.
        RetrievalError: As :meth:`retrieval_core.Index.aretrieve`.
    """
    if request.id is not None and len(request.indexes or ()) > 1:
        msg = f"id is of one index, got indexes {', '.join(request.indexes or ())}. Set index, not indexes."
        raise InvalidParameterError(msg)
    served = context.index(request.index if request.indexes is None else request.indexes[0])
    settings = (await served.index()).config
    asked = request.top_k or settings.search.top_k

    async def find(filters: Mapping[str, Any] | None, top_k: int) -> RetrievalResult:
        fields = {name: getattr(request, name) for name in QueryRequest.model_fields}
        fields |= {"filters": dict(filters) if filters else None, "top_k": top_k}
        again = SearchIndexRequest(**fields, with_fallback=request.with_fallback, with_trace=True, use_cache=False)
        return await search(context, again)

    found = await find(request.filters, asked)
    analyzer = await served.analyzer()
    spans, words = await asyncio.to_thread(
        lambda: (
            tuple(analyzer.highlight_spans(found.query, hit.chunk.text) for hit in found.hits),
            tuple(_heading_words(analyzer, found.query, hit.chunk) for hit in found.hits),
        )
    )
    expected = None
    if request.id is not None:
        expected = _place(found, request.id)
        if expected is None:
            named = (await read_chunk(context, ChunkRequest(id=request.id, index=served.name))).id
            expected = _place(found, named) or await _why_not(
                request, named, found, find, asked=asked, candidates=settings.search.candidates
            )
    deadline = settings.deadline_seconds
    return Explanation(found, spans, words, expected, None if deadline is None else deadline * 1000)


def _heading_words(analyzer: Analyzer, query: str, chunk: Chunk) -> tuple[str, ...]:
    text = "\n".join(filter(None, (chunk.title, *chunk.section_path)))
    words = (text[span.start : span.end].lower() for span in analyzer.highlight_spans(query, text))
    return tuple(dict.fromkeys(words))


def _place(found: RetrievalResult, chunk_id: str) -> ExpectedChunk | None:
    """Return the rank of a chunk among results; ``None`` if it is not among them."""
    for rank, hit in enumerate(found.hits, 1):
        if hit.id == chunk_id:
            return ExpectedChunk(f"Its rank is {rank}.", hit, rank)
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
        asked: The number of requested results.
        candidates: Candidates of each search that were fused: that many results have the order of the first search.
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
        f"The stage {record.stage} dropped it: {item.reason[:_LONGEST_NOTE] or f'score {item.score:.3g}'}."
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
