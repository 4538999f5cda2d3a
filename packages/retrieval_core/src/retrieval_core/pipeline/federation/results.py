"""From what several indexes came to, to what the caller gets."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from retrieval_core.pipeline.search_loop import context_of
from retrieval_core.types import Degradation, RetrievalResult
from retrieval_core.types.filters.syntax import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.federation.searching import Round
    from retrieval_core.pipeline.stages.rewrite import Rewriting
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Query, StageRecord
    from retrieval_core.types.filters import Filter

logger = logging.getLogger("retrieval_core")


def make_result(
    run: Run,
    query: Query,
    rewriting: Rewriting[Round],
    rounds: Sequence[Round],
    config: RetrievalConfig,
    *,
    condition: Filter | None,
    weights: Mapping[str, float],
) -> RetrievalResult:
    """Return the best round's hits, with everything that was decided on the way.

    Args:
        run: Has the trace.
        query: The question.
        rewriting: What the rounds came to.
        rounds: All of them, in order.
        config: How the context is written.
        condition: What every passage had to pass.
        weights: Of all indexes.
    """
    best = rewriting.best
    context = context_of(best.hits, config)
    taken = Counter(hit.source_index for hit in best.hits)
    indexes: dict[str, JSON] = {
        name: {"found": len(result.hits), "hits": taken[name], "weight": weights[name], "from_cache": result.from_cache}
        for name, result in best.results.items()
    }
    modes = {str(result.metadata["mode"]) for result in best.results.values()}
    metadata: dict[str, JSON] = {
        "query_normalized": query.text,
        "query_truncated": query.truncated,
        "mode": modes.pop() if len(modes) == 1 else "mixed" if modes else config.search.mode,
        "filters_applied": to_json(condition) if condition is not None else {},
        "indexes": indexes,
        "merged_by": best.by,
        "documents_fetched": sum(_count(result) for result in best.results.values()),
        "documents_after_compression": len(best.hits),
        "filtered_count": 0 if best.filtered is None else best.filtered.filtered_count,
        "relevance_score": best.relevance,
        "query_rewritten": bool(rewriting.rewrites),
        "rewrite_attempts": rewriting.attempts,
        "query_searched": best.query.text,
        "context_truncated": context.truncated,
    }
    if not best.results:
        metadata["error"] = "; ".join(f"{failure.stage}: {failure.reason}" for failure in best.failures)
    elif best.selected and not best.hits:
        metadata["note"] = (
            f"{len(best.selected)} passages were found, and the relevance filter let none of them through"
        )
    elif not best.hits:
        notes = {name: result.metadata.get("note") for name, result in best.results.items()}
        if told := [f"{name}: {note}" for name, note in notes.items() if note is not None]:
            metadata["note"] = "; ".join(told)
    if beside := {(item["kind"], item["text"]): item for item in _searched_beside(best)}:
        metadata["searched_beside"] = list(beside.values())
    failures = best.failures + rewriting.failures + (() if best.pruned is None else best.pruned.failures)
    own = tuple(Degradation(item.stage, item.reason) for item in failures)
    for entry in dict.fromkeys(own):
        logger.warning("%s: %s", entry.stage, entry.reason)
    return RetrievalResult(
        query=query.original,
        hits=best.hits,
        formatted_context=context.text,
        metadata=metadata,
        latency_ms=run.elapsed_ms,
        degraded=tuple(dict.fromkeys((*own, *best.degraded))),
        trace=tuple(_trace(run.records, rounds)),
        rewrites=rewriting.rewrites,
    )


def _count(result: RetrievalResult) -> int:
    fetched = result.metadata.get("documents_fetched")
    return fetched if isinstance(fetched, int) else len(result.hits)


def _searched_beside(best: Round) -> Iterator[Mapping[str, JSON]]:
    """Yield what the indexes searched for beside the question."""
    for result in best.results.values():
        yield from cast("Sequence[Mapping[str, JSON]]", result.metadata.get("searched_beside", ()))


def _trace(records: Sequence[StageRecord], rounds: Sequence[Round]) -> Iterator[StageRecord]:
    """Yield the records of a run, each index's own before the one of its call, with its name."""
    inner = {
        (f"index {name}", number): (name, result)
        for number, searched in enumerate(rounds, start=1)
        for name, result in searched.results.items()
    }
    for record in records:
        if (found := inner.get((record.stage, record.round or 0))) is not None:
            name, result = found
            for own in result.trace:
                yield replace(own, stage=f"index {name}: {own.stage}", round=record.round)
            yield replace(record, count_out=len(result.hits))
        else:
            yield record
