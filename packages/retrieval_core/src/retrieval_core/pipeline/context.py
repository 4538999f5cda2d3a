"""From a result to a context pack: reading what stands around the hits, and assembling it within the budget."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from retrieval_core.errors import checked_count
from retrieval_core.pipeline.scopes import index_of, scoped, scoped_surroundings, unscoped
from retrieval_core.pipeline.stages.budget import assemble
from retrieval_core.pipeline.stages.cite import check_citation, request_to_check
from retrieval_core.pipeline.stages.expand import Surroundings, surroundings_of, surroundings_request
from retrieval_core.pipeline.stages.sound import fetch
from retrieval_core.run.outcomes import Failed, raise_faults, value_of
from retrieval_core.types import CitationCheck, ContextPack, Degradation, LedgerEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from retrieval_core.config import ContextConfig
    from retrieval_core.pipeline.stages.budget import Assembled
    from retrieval_core.ports import FetchRequest, Store, TokenCounter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Citation, Hit, Metadata, RetrievalResult, StageRecord
    from retrieval_core.types.filters import Filter

logger = logging.getLogger("retrieval_core")
NOTHING = Surroundings({}, {}, {})


async def make_context(
    run: Run,
    result: RetrievalResult,
    settings: ContextConfig,
    count: TokenCounter,
    *,
    primaries: int,
    stores: Mapping[str, Store],
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
        stores: What the surroundings are read from, each in one call, by the name of the index; of one index, the name
            is empty. There are none where the surroundings are given.
        condition: What every passage must pass, neighbours too.
        around: What stands around the hits, where no store has to be asked.
        strict: Whether a failure that could be done without is raised instead.

    Raises:
        RetrievalError: The tokens could not be counted; or, with ``strict``, the surroundings could not be read.
    """
    before = len(run.records)
    shown: dict[str, list[Hit]] = {name: [] for name in stores}
    for hit in result.hits[:primaries] if stores else ():
        shown[hit.source_index or ""].append(hit)
    requests = {name: surroundings_request(hits, settings, condition) for name, hits in shown.items()}
    readings = (_surroundings(run, name, stores[name], request, condition) for name, request in requests.items())
    parts = await asyncio.gather(*readings)
    failures = tuple(part for part in parts if isinstance(part, Failed))
    for failure in failures:
        logger.warning("%s: %s", failure.stage, failure.reason)
    raise_faults(failures if strict or "" in stores else (), strict=strict)
    for name, part in zip(shown, parts, strict=True):
        if not isinstance(part, Failed):
            around = scoped_surroundings(name, part, around) if name else part
    scoped_hits = (replace(hit, chunk=scoped(hit.source_index, hit.chunk)) for hit in result.hits if hit.source_index)
    result = replace(result, hits=tuple(scoped_hits) or result.hits)
    hits = result.hits[:primaries]
    # No coroutine function: the runner calls it in a thread.
    in_thread = cast("Callable[..., Awaitable[Assembled]]", assemble)
    assembled = value_of(await run.without_retries().call("assemble", in_thread, hits, around, settings, count))
    return pack_of(
        result,
        assembled,
        shown=len(hits),
        degraded=result.degraded + tuple(Degradation(failure.stage, failure.reason) for failure in failures),
        max_tokens=settings.max_tokens,
        stages=run.records[before:],
        latency_ms=run.elapsed_ms,
    )


async def _surroundings(
    run: Run, name: str, store: Store, request: FetchRequest | None, condition: Filter | None
) -> Surroundings | Failed:
    if request is None:
        return NOTHING
    stage = f"index {name}: surroundings" if name else "surroundings"
    bound, backend = (run.until(0.95), f"index {name}") if name else (run, "store")
    outcome = await fetch(bound, store, request, stage=stage, backend=backend)
    if isinstance(outcome, Failed):
        return outcome
    if not outcome.value.sections:
        return surroundings_of(outcome.value, condition)
    return await asyncio.to_thread(
        surroundings_of, outcome.value, condition
    )  # a section may be as long as its document


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
    reason = f"it is not among the {shown} best chunks"
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
        note=_note_of(result, assembled, max_tokens),
        relevance=result.relevance,
    )


def _note_of(result: RetrievalResult, assembled: Assembled, max_tokens: int) -> str | None:
    if not assembled.passages:
        return _why_empty(result, max_tokens)
    return None if result.relevance is None else result.relevance.note


def _why_empty(result: RetrievalResult, max_tokens: int) -> str:
    if result.hits:
        return f"no sentence of the results ({len(result.hits)}) fits into {max_tokens} tokens"
    return str(result.metadata.get("error") or result.metadata.get("note") or "nothing was found")


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
    return settings.model_copy(update={"max_tokens": checked_count(max_tokens, "max_tokens")})


async def check_citations(
    run: Run, stores: Mapping[str, Store], citations: Sequence[Citation]
) -> tuple[CitationCheck, ...]:
    """Compare citations with what their indexes say now, each in one read.

    Raises:
        RetrievalError: An index cannot be read, or not in time.
    """
    own: dict[str, list[int]] = {}
    checks: dict[int, CitationCheck] = {}
    for place, citation in enumerate(citations):
        name = "" if "" in stores else index_of(citation)
        if name in stores:
            own.setdefault(name, []).append(place)
        else:
            problem = f"the document {citation.document_id!r} is of none of the indexes {', '.join(stores)}"
            checks[place] = CitationCheck(citation, (problem,))

    async def check(name: str, places: Sequence[int]) -> None:
        cited = [unscoped(name, citations[place]) if name else citations[place] for place in places]
        backend = f"index {name}" if name else "store"
        outcome = await fetch(run, stores[name], request_to_check(cited), stage="verify", backend=backend)
        fetched = value_of(outcome)
        # To look for a quote that is not where it should be takes a while in a long document.
        checked = await asyncio.to_thread(lambda: [check_citation(citation, fetched) for citation in cited])
        for place, each in zip(places, checked, strict=True):
            checks[place] = replace(each, citation=citations[place])

    await asyncio.gather(*(check(name, places) for name, places in own.items()))
    return tuple(checks[place] for place in range(len(citations)))
