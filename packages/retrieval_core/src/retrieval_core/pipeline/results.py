"""From what the stages came to, to what the caller gets."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.pipeline.search_loop import context_of
from retrieval_core.types import Degradation, RetrievalResult
from retrieval_core.types.filters.syntax import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.search_loop import Round
    from retrieval_core.pipeline.stages.fuse import Ranked
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.pipeline.stages.rewrite import Rewriting
    from retrieval_core.ports import Candidate
    from retrieval_core.run.outcomes import Failed
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Query

logger = logging.getLogger("retrieval_core")


def make_result(
    run: Run, query: Query, rewriting: Rewriting[Round], plan: Plan, config: RetrievalConfig, *, note: str | None = None
) -> RetrievalResult:
    """Return the best round's hits, with everything that was decided on the way.

    Args:
        run: Has the trace.
        query: The question.
        rewriting: All rounds.
        plan: What was asked of them.
        config: How the context is written.
        note: Why nothing was found, where that is known.
    """
    best = rewriting.best
    found, hits = best.found, best.hits
    context = context_of(hits, config)
    filtered = best.filtered
    metadata: dict[str, JSON] = {
        "query_normalized": query.text,
        "query_truncated": query.truncated,
        "mode": plan.mode,
        "filters_applied": to_json(plan.condition) if plan.condition is not None else {},
        "documents_fetched": len(_ids(found.candidates).union(*(_ids(other.ranked) for other in best.beside))),
        "documents_after_compression": len(hits),
        "filtered_count": filtered.filtered_count if filtered is not None else 0,
        "relevance_score": best.relevance,
        "query_rewritten": bool(rewriting.rewrites),
        "rewrite_attempts": rewriting.attempts,
        "query_searched": best.query.text,
        "context_truncated": context.truncated,
    }
    if best.beside:
        metadata["searched_beside"] = [{"kind": other.origin.kind, "text": other.origin.text} for other in best.beside]
    if note is not None:
        metadata["note"] = note
    if filtered is not None and best.selected.hits and not hits:
        metadata["note"] = (
            f"{len(best.selected.hits)} passages were found, and the relevance filter let none of them through"
        )
    if (failure := best.selected.failure) is not None and not hits:
        metadata["error"] = failure.reason
    degraded = tuple(
        dict.fromkeys(
            (
                *(Degradation(item.stage, item.reason) for item in best.failures + rewriting.failures),
                *best.selected.degraded,
            )
        )
    )
    for entry in degraded:
        logger.warning("%s: %s", entry.stage, entry.reason)
    return RetrievalResult(
        query=query.original,
        hits=hits,
        formatted_context=context.text,
        metadata=metadata,
        latency_ms=run.elapsed_ms,
        degraded=degraded,
        trace=run.records,
        rewrites=rewriting.rewrites,
    )


def _ids(found: Sequence[Candidate | Ranked]) -> set[str]:
    return {item.chunk_id for item in found}


def with_troubles(result: RetrievalResult, troubles: tuple[Failed, ...]) -> RetrievalResult:
    """Return a result that also lists what was done without after it was made."""
    if not troubles:
        return result
    return replace(result, degraded=result.degraded + tuple(Degradation(item.stage, item.reason) for item in troubles))
