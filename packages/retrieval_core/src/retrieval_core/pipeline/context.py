"""From a result to a context pack: reading what stands around the hits, and assembling it within the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from retrieval_core.errors import InvalidParameterError, SearchError
from retrieval_core.pipeline.search_loop import raise_what_must_not_be_hidden, value_of
from retrieval_core.pipeline.stages.budget import assemble
from retrieval_core.pipeline.stages.cite import check_citation, request_to_check
from retrieval_core.pipeline.stages.expand import Surroundings, surroundings_of, surroundings_request
from retrieval_core.ports import Fetched
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.types import ContextPack, Degradation, LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from retrieval_core.config import ContextConfig
    from retrieval_core.pipeline.stages.budget import Assembled
    from retrieval_core.ports import Store, TokenCounter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Citation, CitationCheck, Hit, Metadata, RetrievalResult, StageRecord
    from retrieval_core.types.filters import Filter

NOTHING = Surroundings({}, {}, {})


async def make_context(
    run: Run,
    result: RetrievalResult,
    settings: ContextConfig,
    count: TokenCounter,
    *,
    primaries: int,
    store: Store | None = None,
    condition: Filter | None = None,
    around: Surroundings = NOTHING,
    strict: bool = False,
) -> ContextPack:
    """Return the hits of a result with what stands around them, within the budget.

    Args:
        run: Makes the calls.
        result: Its first ``primaries`` hits are shown, the others are named in the ledger.
        settings: What to put around the hits, and the budget.
        count: Counts the tokens of a text; called in a thread.
        primaries: At least 1.
        store: What the surroundings are read from, in one call; ``None`` where they are given.
        condition: What every passage must pass, neighbours too.
        around: What stands around the hits, where no store has to be asked.
        strict: Whether a failure that could be done without is raised instead.

    Raises:
        RetrievalError: The tokens could not be counted; or, with ``strict``, the surroundings could not be read.
    """
    hits = result.hits[:primaries]
    degraded = result.degraded
    request = None if store is None else surroundings_request(hits, settings, condition)
    before = len(run.records)
    if store is not None and request is not None:
        outcome = await run.on("store").call("surroundings", store.fetch, request)
        if isinstance(outcome, Ok) and not isinstance(outcome.value, Fetched):  # pyright: ignore[reportUnnecessaryIsInstance]
            problem = f"the store's answer cannot be used: {outcome.value!r:.80} is no Fetched"
            outcome = Failed("surroundings", SearchError(problem))
        if isinstance(outcome, Failed):
            raise_what_must_not_be_hidden((outcome,), strict=strict)
            degraded += (Degradation("surroundings", outcome.reason),)
        else:
            around = surroundings_of(outcome.value, condition)

    # No coroutine function: the runner calls it in a thread.
    in_thread = cast("Callable[..., Awaitable[Assembled]]", assemble)
    assembled = value_of(await run.without_retries().call("assemble", in_thread, hits, around, settings, count))
    return pack_of(
        result,
        assembled,
        shown=len(hits),
        degraded=degraded,
        max_tokens=settings.max_tokens,
        stages=run.records[before:],
        latency_ms=run.elapsed_ms,
    )


def pack_of(
    result: RetrievalResult,
    assembled: Assembled,
    *,
    shown: int,
    degraded: tuple[Degradation, ...],
    max_tokens: int,
    stages: tuple[StageRecord, ...],
    latency_ms: float,
) -> ContextPack:
    """Return what was assembled from a result as a pack; hits beyond those shown are in its ledger too."""
    considered = {entry.id for entry in assembled.ledger}
    reason = f"it is not among the {shown} best passages"
    beyond = tuple(
        LedgerEntry(hit.id, hit.chunk.document_id, "primary", "dropped", reason)
        for hit in result.hits[shown:]
        if hit.id not in considered
    )
    return ContextPack(
        query=result.query,
        passages=assembled.passages,
        context_pack=assembled.text,
        ledger=assembled.ledger + beyond,
        token_count=assembled.tokens,
        max_tokens=max_tokens,
        trace=_trace(result, assembled),
        stages=result.trace + stages,
        degraded=degraded,
        latency_ms=latency_ms,
        note=None if assembled.passages else _why_empty(result, max_tokens),
    )


def _why_empty(result: RetrievalResult, max_tokens: int) -> str:
    if result.hits:
        return f"{len(result.hits)} passages were found, and not one sentence of any fits into {max_tokens} tokens"
    return str(result.metadata.get("note") or result.metadata.get("error") or "nothing was found")


def _trace(result: RetrievalResult, assembled: Assembled) -> Metadata:
    """Return the facts of a run under the names of the specification; the first is the same for every store."""
    found = sorted(result.hits, key=_before_reranking)
    reranked = [hit for hit in result.hits if hit.scores.rerank is not None]
    return {
        "pinecone_candidates": [{"chunk_id": hit.id, "score": _first_score(hit)} for hit in found],
        "rerank_results": [
            {
                "chunk_id": hit.id,
                "relevance_score": round(100 * (hit.scores.rerank or 0.0), 6),  # not 56.99999999999999
                "answerability": None if hit.evidence is None else hit.evidence.answers,
                "key_evidence": None if hit.evidence is None else hit.evidence.text,
                "key_evidence_is_quoted": None if hit.evidence is None else hit.evidence.is_quoted,
            }
            for hit in reranked
        ],
        "final_token_count": assembled.tokens,
        "expansion_stats": _statistics(assembled.ledger),
    }


def _before_reranking(hit: Hit) -> tuple[float, str]:
    return -_first_score(hit), hit.id


def _first_score(hit: Hit) -> float:
    scores = hit.scores
    return next((score for score in (scores.fused, scores.dense, scores.lexical) if score is not None), hit.score)


def _statistics(ledger: Sequence[LedgerEntry]) -> dict[str, dict[str, int]]:
    """Return for each role how many were considered, shown and dropped."""
    statistics = {
        role: {"considered": 0, "kept": 0, "shortened": 0, "dropped": 0}
        for role in ("primary", "parent", "sibling", "cross_page")
    }
    for entry in ledger:
        statistics[entry.role]["considered"] += 1
        statistics[entry.role][entry.outcome] += 1
    return statistics


def with_budget(settings: ContextConfig, max_tokens: int | None) -> ContextConfig:
    """Return settings with another budget, where one is given.

    Raises:
        InvalidParameterError: It is no whole number of at least 1.
    """
    if max_tokens is None:
        return settings
    if type(max_tokens) is not int or max_tokens < 1:
        msg = f"max_tokens must be a whole number of at least 1, got {max_tokens!r:.80}"
        raise InvalidParameterError(msg)
    return settings.model_copy(update={"max_tokens": max_tokens})


async def check_citations(run: Run, store: Store, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
    """Compare citations with what a store has now, in one read.

    Raises:
        RetrievalError: The store cannot be read, or not in time.
    """
    fetched = value_of(await run.on("store").call("verify", store.fetch, request_to_check(citations)))
    return tuple(check_citation(citation, fetched) for citation in citations)
