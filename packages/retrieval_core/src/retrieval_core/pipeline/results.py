"""From the rounds of a search to the caller's result, with its evaluation."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.errors import IncompleteSearchError
from retrieval_core.pipeline.search_loop import context_of
from retrieval_core.pipeline.stages.sound import sound
from retrieval_core.run.outcomes import Ok, is_static, raise_faults
from retrieval_core.types import Degradation, EvaluationScores, RetrievalResult
from retrieval_core.types.filters.syntax import to_json

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.rewrite import Rewriting, Round
    from retrieval_core.pipeline.stages.search import Searched
    from retrieval_core.ports import Evaluator
    from retrieval_core.run.outcomes import Failed
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Query, Relevance
    from retrieval_core.types.filters import Filter

logger = logging.getLogger("retrieval_core")


async def make_result(
    run: Run,
    query: Query,
    rewriting: Rewriting,
    condition: Filter | None,
    config: RetrievalConfig,
    *,
    evaluator: Evaluator | None = None,
    unknown_fields: str | None = None,
    logged: set[Degradation] | None = None,
    relevance: Relevance | None = None,
) -> RetrievalResult:
    """Return the best round's hits, with everything that was decided on the way and, with an evaluator, its scores.

    Args:
        run: Has the trace.
        query: The question.
        rewriting: All rounds.
        condition: What every passage had to pass.
        config: How the context is written.
        evaluator: Scores the result.
        unknown_fields: Which fields of the filter no chunk has.
        logged: What was logged and holds for every query; it is not logged again.
        relevance: Whether the hits answer the query.

    Raises:
        RetrievalError: The evaluator is set up wrongly; or, with ``strict``, it failed.
    """
    best = rewriting.best
    searched, hits = best.searched, best.hits
    context = context_of(hits, config)
    metadata: dict[str, JSON] = {
        "query_normalized": query.text,
        "query_truncated": query.truncated,
        "filters_applied": to_json(condition) if condition is not None else {},
        **searched.metadata,
        "documents_after_compression": len(hits),
        "filtered_count": len(best.selected) - len(hits),
        "relevance_score": best.relevance,
        "query_rewritten": bool(rewriting.rewrites),
        "rewrite_attempts": rewriting.attempts,
        "query_searched": searched.query.text,
        "context_truncated": context.truncated,
    }
    if searched.indexes:
        taken = Counter(hit.source_index for hit in hits)
        metadata["indexes"] = {name: {**told, "hits": taken[name]} for name, told in searched.indexes.items()}
    if (note := _why_empty(best, unknown_fields)) is not None:
        metadata["note"] = note
    error = searched.error or (None if best.selected else _why_incomplete(searched))
    if error is not None and not hits:
        metadata["error"] = error
    failures = best.failures + rewriting.failures
    own = [Degradation(item.stage, item.reason) for item in failures]
    if unknown_fields is not None:
        own.append(Degradation("filter", unknown_fields))
    degraded = tuple(dict.fromkeys((*own, *best.degraded)))
    known = {*(searched.degraded if searched.indexes else ()), *(logged or ())}  # indexes log their own
    for entry in degraded:
        if entry not in known:
            logger.warning("%s: %s", entry.stage, entry.reason)
    if logged is not None:
        logged.update(Degradation(item.stage, item.reason) for item in failures if is_static(item.error))
    result = RetrievalResult(
        query=query.original,
        hits=hits,
        formatted_context=context.text,
        metadata=metadata,
        latency_ms=run.elapsed_ms,
        degraded=degraded,
        trace=run.records,
        rewrites=rewriting.rewrites,
        relevance=relevance,
    )
    if evaluator is None:
        return result
    return await evaluated(run, evaluator, query.text, result, result.formatted_context, strict=config.strict)


def _why_empty(best: Round, unknown_fields: str | None) -> str | None:
    """Return why there are no hits, if that is known."""
    if best.selected and not best.hits:
        return f"the relevance filter dropped all results ({len(best.selected)})"
    if unknown_fields is not None and not best.selected:
        return f"filter: {unknown_fields}"
    return best.searched.note


def _why_incomplete(searched: Searched) -> str | None:
    """Return which part of a search did not answer, where nothing was found; it may be what has the hits."""
    return next((item.reason for item in searched.failures if not _has_answered(item.error)), None)


def _has_answered(error: Exception) -> bool:
    """Whether a part carries what it found, or can never be searched as the program is set up."""
    return isinstance(error, IncompleteSearchError) or is_static(error)


async def evaluated(
    run: Run, evaluator: Evaluator, query: str, result: RetrievalResult, response: str, *, strict: bool
) -> RetrievalResult:
    """Return a result with its scores for a response; where the evaluator fails, they are ``None``.

    Raises:
        RetrievalError: The evaluator is set up wrongly; or, with ``strict``, it failed.
    """
    outcome = await run.call("evaluate", evaluator.evaluate, query, result.documents, response)
    trace = (*result.trace, run.records[-1])
    outcome = sound(outcome, "evaluate", "the evaluator", EvaluationScores, _problem)
    if isinstance(outcome, Ok):
        return replace(result, evaluation=outcome.value, trace=trace)
    raise_faults((outcome,), strict=strict)
    return with_failures(replace(result, evaluation=EvaluationScores(), trace=trace), (outcome,))


def _problem(given: EvaluationScores) -> str | None:
    scores = (given.context_precision, given.response_relevancy)
    return None if all(score is None or 0 <= score <= 1 for score in scores) else f"{given!r:.120}"


def with_failures(result: RetrievalResult, failures: tuple[Failed, ...]) -> RetrievalResult:
    """Return a result that also lists what was done without after it was made."""
    if not failures:
        return result
    return replace(result, degraded=result.degraded + tuple(Degradation(item.stage, item.reason) for item in failures))
