"""Searching, by the contract: from a ``SearchQuery`` to a ``RetrievalResponse``."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from retrieval_core.errors import EmbeddingError
from retrieval_core.index.serialization import chunk_to_json, relevance_to_json
from retrieval_core.types import Degradation
from retrieval_core_mcp.http.indexes import utc
from retrieval_core_mcp.http.problems import entry_shown, incomplete, no_vectors, not_embedded, shown
from retrieval_core_mcp.tenancy import narrowed, own_result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.compat.service import SearchQuery
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.types import Hit, RetrievalResult, StageRecord
    from retrieval_core_mcp.http.envelope import Call
    from retrieval_core_mcp.http.indexes import ServedIndex


async def search(call: Call, query: SearchQuery, served: ServedIndex) -> dict[str, Any]:
    """Answer a search.

    The configured mode, or the one asked for, picks the results; they are sorted by their similarity to the question.

    Raises:
        RequestError: The index has no vectors, or the question could not be embedded and the caller did not allow that.
        RetrievalError: As :meth:`retrieval_core.Index.aretrieve`.
    """
    if not served.embeds:
        raise no_vectors(served)
    started = datetime.now(UTC)
    result = await find(call, query, served, query.filters, query.top_k)
    without = [entry for entry in result.degraded if entry.stage == "embed"]
    if without and not query.allow_degraded:
        raise not_embedded(shown(without[0].reason, served))
    if not result.hits and (error := result.metadata.get("error")) is not None:
        raise incomplete(str(error), served)
    hits = in_order(result.hits, query.similarity_threshold)
    answer: dict[str, Any] = {
        "query": call.query,
        "status": "success",
        "results": [_result(hit, rank, served) for rank, hit in enumerate(hits, 1)],
        "execution": call.execution(len(hits), **_times(result, started)),
        "errors": [],
    }
    if result.relevance is not None and (result.relevance.note or query.explain):
        answer["relevance"] = relevance_to_json(result.relevance)
    if result.degraded:
        answer["degraded"] = degraded(result.degraded, served)
    if query.explain:
        answer["trace"] = {
            "stages": [stage_to_json(record, served) for record in result.trace],
            "hits": [_traced(hit) for hit in result.hits if similarity(hit) >= query.similarity_threshold],
        }
    return answer


async def find(
    call: Call,
    query: SearchQuery,
    served: ServedIndex,
    filters: Mapping[str, Any] | None,
    top_k: int,
    *,
    use_cache: bool = True,
) -> RetrievalResult:
    """Ask an index a question, as far as its caller may see it.

    Args:
        query: What is asked, but for the two that follow.

    Raises:
        RetrievalError: As :meth:`retrieval_core.Index.aretrieve`.
    """
    embeds = served.embeds
    # With a threshold a search by words embeds the question too, and every hit has its similarity.
    threshold = query.similarity_threshold if query.similarity_threshold or query.mode == "lexical" else None
    options: QueryOptions = {
        "top_k": top_k,
        "mode": query.mode if embeds else query.mode or "lexical",
        "history": query.history,
        "score_threshold": threshold if embeds else None,
        "use_cache": use_cache,
    }
    condition = narrowed(filters, call.condition)
    try:
        result = await served.engine.aretrieve(query.query_text, condition, **options, **served.options)
    except EmbeddingError as error:  # one that does not pass by itself, such as a wrong key
        if not query.allow_degraded:
            raise
        by_words: QueryOptions = {**options, "mode": "lexical", "score_threshold": None}
        result = await served.engine.aretrieve(query.query_text, condition, **by_words, **served.options)
        result = replace(result, degraded=(Degradation("embed", str(error)), *result.degraded))
    return result if call.condition is None else own_result(result)


def in_order(hits: Sequence[Hit], threshold: float) -> list[Hit]:
    """Return the hits that are similar enough, the most similar first, and those that are equally so by their ids."""
    return sorted((hit for hit in hits if similarity(hit) >= threshold), key=lambda hit: (-similarity(hit), hit.id))


def similarity(hit: Hit) -> float:
    """Return the cosine similarity of a hit with the question, in [0, 1]; 0 where it is not known."""
    return 0.0 if hit.scores.dense is None else min(1.0, max(0.0, hit.scores.dense))


def degraded(entries: Sequence[Degradation], served: ServedIndex) -> list[dict[str, str]]:
    """Return what was done without."""
    return [{"stage": entry.stage, "reason": shown(entry.reason, served)} for entry in entries]


def _result(hit: Hit, rank: int, served: ServedIndex) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "rank": rank,
        "text": chunk.text,
        "similarity_score": similarity(hit),
        "metadata": {**served.of(hit).metadata(chunk), **index_of(hit)},
    }


def _traced(hit: Hit) -> dict[str, Any]:
    """Return what is known of a hit beside what every result has; in the order of the index, whatever ranks it."""
    known = chunk_to_json(hit.chunk)
    names = ("id", "document_id", "chunk_index", "total_chunks", "embedding_model")
    return {**{name: known[name] for name in names}, **index_of(hit), "score": hit.score, "scores": scores_of(hit)}


def index_of(hit: Hit) -> dict[str, str]:
    """Return which of several indexes a hit is from; nothing where one was asked."""
    return {} if hit.source_index is None else {"index": hit.source_index}


def scores_of(hit: Hit) -> dict[str, float]:
    """Return the scores and ranks of a hit at the stages that saw it."""
    return {name: value for name, value in asdict(hit.scores).items() if value is not None}


def stage_to_json(record: StageRecord, served: ServedIndex) -> dict[str, Any]:
    """Return what a stage did, without what it has no value for."""
    return entry_shown({name: value for name, value in asdict(record).items() if value not in (None, ())}, served)


def _times(result: RetrievalResult, started: datetime) -> dict[str, Any]:
    """Return when the question was embedded, and how long the store took; nothing of a result from the cache."""
    if result.from_cache:
        return {}
    took: dict[str, float] = {}
    for record in result.trace:
        took[record.stage] = took.get(record.stage, 0.0) + record.milliseconds
    times: dict[str, Any] = {}
    if "embed" in took:
        times["query_embedded_at"] = utc(started + timedelta(milliseconds=took["embed"]))
    if sides := [took[side] for side in ("dense", "lexical", "hybrid") if side in took]:
        # Both sides are searched at the same time, and what they found is read afterwards.
        times["qdrant_query_time_ms"] = round(max(sides) + took.get("fetch", 0.0))
    return times
