"""Why a search returns what it does, by the contract: scores and stages, and what became of a passage."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from retrieval_core.index.serialization import chunk_to_json, relevance_to_json
from retrieval_core_mcp.expected import among, why_not
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.http.problems import no_vectors
from retrieval_core_mcp.http.search import degraded, find, index_of, scores_of, stage_to_json

if TYPE_CHECKING:
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Hit, RetrievalResult
    from retrieval_core_mcp.http.arguments import ExplainQuery
    from retrieval_core_mcp.http.envelope import Call
    from retrieval_core_mcp.http.indexes import ServedIndex


async def explain(call: Call, query: ExplainQuery, served: ServedIndex) -> dict[str, Any]:
    """Search, and tell what each stage did, and what became of the passage that was expected.

    Raises:
        RequestError: There is no such passage for the caller, or there are no vectors for the threshold.
        RetrievalError: As :meth:`retrieval_core.Index.aretrieve`.
    """
    if not served.embeds and query.similarity_threshold:
        raise no_vectors(served)
    if query.chunk_id is not None and served.parts:
        raise RequestError(400, "a passage is expected of one index: with chunk_id, name index and not indexes")
    search = partial(find, call, query, served, use_cache=False)
    found = await search(query.filters, query.top_k)
    results = await asyncio.to_thread(_shown, found, await served.library.analyzer())
    answer: dict[str, Any] = {
        "query": call.query,
        "status": "success",
        "results": results,
        "stages": [stage_to_json(record, served) for record in found.trace],
    }
    if (deadline := served.engine.config.deadline_seconds) is not None:
        answer["deadline_ms"] = deadline * 1000
    if query.chunk_id is not None:
        told = among(found, query.chunk_id)
        if told is None:
            await served.chunk(query.chunk_id, call.condition)
            candidates = served.engine.config.search.candidates
            told = await why_not(query.chunk_id, found, search, query.filters, asked=query.top_k, candidates=candidates)
        answer["why"] = told.why
        if told.hit is not None:
            answer["expected"] = _scored(told.hit, told.rank)
    if found.relevance is not None:
        answer["relevance"] = relevance_to_json(found.relevance)
    return {
        **answer,
        "degraded": degraded(found.degraded, served),
        "execution": call.execution(len(found.hits)),
        "errors": [],
    }


def _shown(found: RetrievalResult, analyzer: Analyzer) -> list[dict[str, Any]]:
    """Return the results with their passages, and where words of the question stand in these."""
    return [
        {
            **_scored(hit, rank),
            "chunk": chunk_to_json(hit.chunk),
            "highlights": [[span.start, span.end] for span in analyzer.highlight_spans(found.query, hit.chunk.text)],
        }
        for rank, hit in enumerate(found.hits, 1)
    ]


def _scored(hit: Hit, rank: int | None) -> dict[str, Any]:
    told: dict[str, Any] = {"id": hit.id, "scores": scores_of(hit), **index_of(hit)}
    if rank is not None:
        told |= {"rank": rank, "score": hit.score}
    if hit.found_by:
        told["found_by"] = [asdict(origin) for origin in hit.found_by]
    return told
