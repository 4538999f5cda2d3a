"""One search of several indexes: each is asked side by side, and what they found becomes one order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.errors import (
    FilterError,
    InvalidParameterError,
    QueryValidationError,
    RetrievalError,
    SearchError,
    ServiceConnectionError,
)
from retrieval_core.pipeline.search_loop import raise_what_must_not_be_hidden, value_of
from retrieval_core.pipeline.stages.merge import IndexResult, candidates_first, merge, weighted, without_copies
from retrieval_core.pipeline.stages.relevance import keep_relevant, relevance_of
from retrieval_core.pipeline.stages.rerank import rerank
from retrieval_core.ports import Side
from retrieval_core.run.outcomes import Failed, Ok, is_callers_fault
from retrieval_core.types import Degradation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.federation.options import FederatedQuery
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.stages.merge import MergedBy
    from retrieval_core.pipeline.stages.prune import Pruned
    from retrieval_core.pipeline.stages.relevance import RelevanceResult
    from retrieval_core.pipeline.stages.rerank import KeptScores
    from retrieval_core.ports import Pruner, RelevanceFilter, Reranker, Rewriter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Hit, Query, RetrievalResult
    from retrieval_core.types.filters import Filter

SIDES: dict[str, frozenset[Side]] = {
    "hybrid": frozenset({"dense", "lexical"}),
    "dense": frozenset({"dense"}),
    "lexical": frozenset({"lexical"}),
}


@dataclass(frozen=True, slots=True)
class Members:
    """The indexes, and what works on the hits of all of them."""

    pipelines: Mapping[str, RetrievalPipeline]
    weights: Mapping[str, float]
    rerankers: tuple[Reranker, ...] = ()
    relevance_filter: RelevanceFilter | None = None
    pruner: Pruner | None = None
    rewriter: Rewriter | None = None
    reranked: KeptScores | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """One run, bound for each stage to the part of the deadline by which it has to be done."""

    transform: Run
    search: Run
    rerank: Run
    relevance: Run
    rewrite: Run

    @classmethod
    def of(cls, run: Run, members: Members) -> Bounds:
        """Return the bounds of the first search."""
        first = run.in_round(1)
        ends = shares_of(
            reranks=bool(members.rerankers),
            filters_by_relevance=members.relevance_filter is not None,
            rewrites=members.rewriter is not None,
        )
        before = run.until(0.25 * ends[0])  # as much as an index has for it that does it by itself
        return cls(before, *(first.until(end) for end in ends), rewrite=run.until(0.95))

    def in_round(self, number: int) -> Bounds:
        """Return the bounds of a later search for other words; its number is at least 2."""
        run = self.rewrite.in_round(number)
        return Bounds(self.transform, run, run, run, self.rewrite)


def shares_of(*, reranks: bool, filters_by_relevance: bool, rewrites: bool) -> tuple[float, float, float]:
    """Return by which part of the deadline searching, reranking and filtering by relevance have to be done."""
    if rewrites:
        return 0.4, 0.55, 0.7
    if filters_by_relevance:
        return 0.5, 0.7, 0.9
    return (0.6, 0.95, 1.0) if reranks else (0.95, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Round:
    """What one search of all indexes came to.

    Attributes:
        query: What was searched for.
        results: Of the indexes that answered, by their names.
        selected: The best hits, before any was left out.
        by: What put them in order.
        failures: One for each index that did not answer, then those of the stages.
        degraded: What the indexes, or a reranker, did without.
        relevance: In [0, 1]; ``None`` where there is nothing to tell it by, or nothing could be searched.
    """

    query: Query
    results: Mapping[str, RetrievalResult]
    selected: tuple[Hit, ...]
    by: MergedBy
    failures: tuple[Failed, ...]
    degraded: tuple[Degradation, ...]
    filtered: RelevanceResult | None
    relevance: float | None
    pruned: Pruned | None = None

    @property
    def hits(self) -> tuple[Hit, ...]:
        """The hits that are left."""
        if self.pruned is not None:
            return self.pruned.hits
        return self.selected if self.filtered is None else self.filtered.hits


async def search_once(
    bounds: Bounds,
    query: Query,
    *,
    members: Members,
    question: str,
    asked: FederatedQuery,
    condition: Filter | None,
    config: RetrievalConfig,
    is_first: bool = False,
) -> Round:
    """Ask all indexes, and put the best of what they found into one order.

    Raises:
        RetrievalError: Something was asked wrongly, or no index can be used; or, with ``strict``, anything failed.
    """
    indexes = [(name, members.pipelines[name], asked.of(name)) for name in asked.names]
    outcomes = await asyncio.gather(*(_ask(bounds.search, index, query, condition) for index in indexes))
    failures = tuple(outcome for outcome in outcomes if isinstance(outcome, Failed))
    _raise_what_was_asked_wrongly(failures, strict=config.strict)
    answered = zip(asked.names, outcomes, strict=True)
    results = {name: outcome.value for name, outcome in answered if isinstance(outcome, Ok)}
    degraded = tuple(
        Degradation(f"index {name}: {item.stage}", item.reason)
        for name, result in results.items()
        for item in result.degraded
    )
    if not results:
        if is_first:
            _raise_where_nothing_is_left(failures, raise_on_error=config.raise_on_error)
        return Round(query, {}, (), "scores", failures, (), None, None)
    run = bounds.search
    started = run.elapsed_ms
    answers = [_answer_of(name, members.pipelines[name], result) for name, result in results.items()]
    fusion = config.search.fusion
    merged = merge(answers, method="zscore" if fusion == "native" else fusion)
    hits = without_copies(weighted(merged.hits, members.weights))
    kept = {(hit.source_index, hit.id) for hit in hits}
    copies = len(merged.hits) - len(hits)
    unweighted = tuple(hit for hit in merged.hits if (hit.source_index, hit.id) in kept)
    decision = f"by {merged.by}" + (f"; {copies} left out that another index has as well" if copies else "")
    run.note("merge", started, len(merged.hits), len(hits), decision)
    if members.rerankers and hits:
        # Weights choose what is reranked and then order what came of it, but are not counted twice in one score.
        hits = candidates_first(unweighted, members.weights, config.reranker.candidates)
        reranked = await rerank(
            bounds.rerank, members.rerankers, question, hits, config.reranker, cache=members.reranked
        )
        raise_what_must_not_be_hidden(reranked.failures, strict=config.strict)
        failures += reranked.failures
        degraded += reranked.degraded
        hits = weighted(reranked.hits, members.weights)
    if config.strict and degraded:
        raise SearchError("; ".join(f"{item.stage}: {item.reason}" for item in degraded))
    hits = hits[: asked.top_k]
    filtered = None
    if members.relevance_filter is not None and hits:
        filtered = await keep_relevant(
            bounds.relevance, members.relevance_filter, question, hits, concurrency=config.relevance_filter.concurrency
        )
        raise_what_must_not_be_hidden(filtered.failures, strict=config.strict)
        failures += filtered.failures
    relevance = relevance_of(hits, filtered)
    return Round(query, results, hits, merged.by, failures, degraded, filtered, relevance)


async def _ask(
    run: Run, index: tuple[str, RetrievalPipeline, QueryOptions], query: Query, condition: Filter | None
) -> Ok[RetrievalResult] | Failed:
    name, pipeline, options = index
    stage = f"index {name}"
    # Each index makes its own calls again where that can help.
    outcome = await run.without_retries().on(stage).call(stage, pipeline.aretrieve, query.text, condition, **options)
    if isinstance(outcome, Ok) and "error" in outcome.value.metadata and not outcome.value.hits:
        return Failed(stage, SearchError(str(outcome.value.metadata["error"])))
    return outcome


def _answer_of(name: str, pipeline: RetrievalPipeline, result: RetrievalResult) -> IndexResult:
    failed = {item.stage for item in result.degraded}
    if "embed" in failed:
        failed.add("dense")
    # Where what was asked for failed, the other side stands in, and its scores tell which one that is.
    scores = [hit.scores for hit in result.hits]
    there: dict[Side, bool] = {
        "dense": any(score.dense is not None for score in scores),
        "lexical": any(score.lexical is not None for score in scores),
    }
    asked = SIDES[str(result.metadata["mode"])]
    sides = (asked - failed) or frozenset[Side]([side for side in there if there[side] and side not in failed])
    embedder = pipeline.embedder if "dense" in sides else None
    return IndexResult(name, result.hits, sides, None if embedder is None else embedder.id)


def _raise_what_was_asked_wrongly(failures: tuple[Failed, ...], *, strict: bool) -> None:
    """Raise what is wrong with the question and not with an index; with ``strict``, the first failure."""
    for failure in failures:
        if strict or isinstance(failure.error, (FilterError, InvalidParameterError, QueryValidationError)):
            value_of(failure)


def _raise_where_nothing_is_left(failures: tuple[Failed, ...], *, raise_on_error: bool) -> None:
    last = failures[-1]
    if all(is_callers_fault(failure.error) for failure in failures):
        value_of(last)
    if raise_on_error:
        if isinstance(last.error, RetrievalError):
            raise last.error
        msg = f"no index could be searched: {last.reason}"
        raise ServiceConnectionError(msg) from last.error
