"""Queries by the contract: requests of the service from a ``SearchQuery``, and the contents of the answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.errors import InvalidParameterError
from retrieval_core.index.serialization import chunk_to_json, pack_to_json, relevance_to_json
from retrieval_core.service import explaining, searching
from retrieval_core.service.service_context import in_utc
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.http.problems import NO_VECTORS
from retrieval_core_mcp.http.sources import source_of

if TYPE_CHECKING:
    from retrieval_core.compat.service import SearchQuery
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import Hit, RetrievalResult, StageRecord
    from retrieval_core_mcp.http.arguments import AnswerQuery, ContextQuery, ExplainQuery

    Q = TypeVar("Q", bound=searching.QueryRequest)


@dataclass(frozen=True, slots=True)
class QueryContents:
    """The contents of an answer to a query, which the envelope goes around.

    Attributes:
        count: Number of results.
        facts: Further facts on the execution.
    """

    contents: dict[str, Any]
    count: int
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


async def search(context: ServiceContext, query: SearchQuery) -> QueryContents:
    """Search. The configured or requested mode picks the results; they are sorted by their similarity to the query.

    Raises:
        RequestError: The index contains no vectors, or the search failed without results.
        RetrievalError: As :func:`retrieval_core.service.searching.search`.
    """
    started = datetime.now(UTC)
    await _check_vectors(context, query)
    request = _request(
        searching.SearchIndexRequest,
        query,
        top_k=query.top_k,
        score_threshold=_similarity_of_all(query),
        with_trace=query.explain,
        with_fallback=query.allow_degraded,
    )
    result = await searching.search(context, request)
    if not result.hits and (error := result.metadata.get("error")) is not None:
        raise _failed(str(error))
    least = query.similarity_threshold
    similar = [(similarity, hit) for hit in result.hits if (similarity := _similarity(hit)) >= least]
    ranked = sorted(similar, key=lambda each: (-each[0], each[1].id))
    served = context.index((query.indexes or (query.index,))[0])
    by_name = {each.name: each for each in context.indexes} if query.indexes else {}
    told: dict[str, Any] = {
        "results": [
            {
                "rank": rank,
                "text": hit.chunk.text,
                "similarity_score": similarity,
                "metadata": {**source_of(hit.chunk, by_name.get(hit.source_index or "", served)), **_index_of(hit)},
            }
            for rank, (similarity, hit) in enumerate(ranked, 1)
        ]
    }
    if result.relevance is not None and (result.relevance.note or query.explain):
        told["relevance"] = relevance_to_json(result.relevance)
    if (syntax := result.metadata.get("query_syntax")) is not None:
        told["query_syntax"] = syntax
    if result.degraded:
        told["degraded"] = [asdict(each) for each in result.degraded]
    if query.explain:
        told["trace"] = {
            "stages": [_stage_to_json(record) for record in result.trace],
            "hits": [_traced(hit) for _, hit in similar],
        }
    return QueryContents(told, len(ranked), _times(result, started))


async def pack_context(context: ServiceContext, query: ContextQuery) -> QueryContents:
    """Search, and pack the results for a language model.

    Raises:
        RequestError: There are no similarities for the threshold, or the search failed without results.
        RetrievalError: As :func:`retrieval_core.service.searching.pack_context`.
    """
    if query.similarity_threshold:
        await _check_vectors(context, query)
    request = _request(searching.ContextRequest, query, **_budget(query))
    pack = await searching.pack_context(context, request)
    if not pack.passages and pack.note in {entry.reason for entry in pack.degraded}:
        raise _failed(pack.note or "")
    return QueryContents(pack_to_json(pack), len(pack.citations))


def answer_request(query: AnswerQuery) -> searching.AnswerRequest:
    """Return the request of the service for a query."""
    return _request(searching.AnswerRequest, query, **_budget(query), verify=query.verify)


async def explain(context: ServiceContext, query: ExplainQuery) -> QueryContents:
    """Search, and return the record of each stage and the rank of an expected chunk.

    Raises:
        RequestError: There are no similarities for the threshold.
        RetrievalError: As :func:`retrieval_core.service.explaining.explain`.
    """
    if query.similarity_threshold:
        await _check_vectors(context, query)
    if query.chunk_id is not None and len(query.indexes or ()) > 1:
        msg = f"chunk_id is of one index, got indexes {', '.join(query.indexes or ())}. Set index, not indexes."
        raise InvalidParameterError(msg)
    request = _request(
        explaining.ExplainRequest,
        query,
        top_k=query.top_k,
        score_threshold=_similarity_of_all(query),
        id=query.chunk_id,
        with_fallback=query.allow_degraded,
    )
    told = await explaining.explain(context, request)
    found = told.result
    answer: dict[str, Any] = {
        "results": [
            {
                **_scored(hit, rank),
                "chunk": chunk_to_json(hit.chunk),
                "highlights": [[span.start, span.end] for span in spans],
                "heading_words": words,
            }
            for rank, (hit, spans, words) in enumerate(
                zip(found.hits, told.highlights, told.heading_words, strict=True), 1
            )
        ],
        "stages": [_stage_to_json(record) for record in found.trace],
    }
    if told.deadline_ms is not None:
        answer["deadline_ms"] = told.deadline_ms
    if told.expected is not None:
        answer["why"] = told.expected.why
        if told.expected.hit is not None:
            answer["expected"] = _scored(told.expected.hit, told.expected.rank)
    if found.relevance is not None:
        answer["relevance"] = relevance_to_json(found.relevance)
    return QueryContents({**answer, "degraded": [asdict(each) for each in found.degraded]}, len(found.hits))


async def _check_vectors(context: ServiceContext, query: SearchQuery) -> None:
    for name in query.indexes or (query.index,):
        served = context.index(name)
        if (await served.index()).embedder is None:
            raise RequestError(400, NO_VECTORS.format(index=served.name))


def _request(kind: type[Q], query: SearchQuery, **own: Any) -> Q:
    return kind(
        query=query.query_text,
        queries=query.queries,
        intent=query.intent,
        filters=query.filters,
        index=query.index,
        indexes=query.indexes,
        mode=query.mode,
        history=query.history,
        **own,
    )


def _similarity_of_all(query: SearchQuery) -> float | None:
    """Return a threshold, also for a keyword search, which then embeds the query so that every hit has a similarity."""
    return query.similarity_threshold if query.similarity_threshold or query.mode == "lexical" else None


def _budget(query: ContextQuery) -> dict[str, Any]:
    top_k = query.top_k if "top_k" in query.model_fields_set else None
    return {"top_k": top_k, "score_threshold": query.similarity_threshold or None, "max_tokens": query.max_tokens}


def _failed(reason: str) -> RequestError:
    return RequestError(503, f"The search failed: {reason}", headers={"retry-after": "1"})


def _similarity(hit: Hit) -> float:
    """Return the cosine similarity of a hit to the query, in [0, 1]; 0 if it is not known."""
    return 0.0 if hit.scores.dense is None else min(1.0, max(0.0, hit.scores.dense))


def _traced(hit: Hit) -> dict[str, Any]:
    """Return what is known of a hit besides its result."""
    known = chunk_to_json(hit.chunk)
    names = ("id", "document_id", "chunk_index", "total_chunks", "embedding_model")
    return {**{name: known[name] for name in names}, **_index_of(hit), "score": hit.score, "scores": _scores(hit)}


def _scored(hit: Hit, rank: int | None) -> dict[str, Any]:
    told: dict[str, Any] = {"id": hit.id, "scores": _scores(hit), **_index_of(hit)}
    if rank is not None:
        told |= {"rank": rank, "score": hit.score}
    if hit.found_by:
        told["found_by"] = [asdict(origin) for origin in hit.found_by]
    return told


def _index_of(hit: Hit) -> dict[str, str]:
    return {} if hit.source_index is None else {"index": hit.source_index}


def _scores(hit: Hit) -> dict[str, float]:
    return {name: value for name, value in asdict(hit.scores).items() if value is not None}


def _stage_to_json(record: StageRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if value not in (None, ())}


def _times(result: RetrievalResult, started: datetime) -> dict[str, Any]:
    """Return when the query was embedded, and how long the store took; nothing for a cached result."""
    if result.from_cache:
        return {}
    took: dict[str, float] = {}
    for record in result.trace:
        took[record.stage] = took.get(record.stage, 0.0) + record.milliseconds
    times: dict[str, Any] = {}
    if "embed" in took:
        times["query_embedded_at"] = in_utc(started + timedelta(milliseconds=took["embed"]))
    if sides := [took[side] for side in ("dense", "lexical", "hybrid") if side in took]:
        # Both searches run at the same time, and their results are read afterwards.
        times["qdrant_query_time_ms"] = round(max(sides) + took.get("fetch", 0.0))
    return times
