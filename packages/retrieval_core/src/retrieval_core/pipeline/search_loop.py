"""The search loop: search, rerank, filter by relevance, and again in other words while too little is found; then prune.

It is the same for one index and for several: only the function that searches once differs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Protocol

from retrieval_core.errors import MissingExtraError, ModelNotFoundError, SearchError
from retrieval_core.pipeline.stages.format import FormattedContext, format_context
from retrieval_core.pipeline.stages.merge import weighted
from retrieval_core.pipeline.stages.prune import prune
from retrieval_core.pipeline.stages.relevance import keep_relevant, relevance_of
from retrieval_core.pipeline.stages.rerank import rerank
from retrieval_core.pipeline.stages.rewrite import Rewriting, Round, rewrite_while_poor
from retrieval_core.run.outcomes import is_callers_fault, raise_faults

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.pipeline.stages.rerank import RerankCache
    from retrieval_core.pipeline.stages.search import Searched
    from retrieval_core.ports import Evaluator, Pruner, RelevanceFilter, Reranker, Rewriter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Hit, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The plug-ins that work on what a search found; ``None``, or nothing, for a stage that there is not."""

    rerankers: tuple[Reranker, ...] = ()
    relevance_filter: RelevanceFilter | None = None
    pruner: Pruner | None = None
    rewriter: Rewriter | None = None
    evaluator: Evaluator | None = None
    reranked: RerankCache | None = None

    @property
    def models(self) -> tuple[object, ...]:
        """All plug-ins, ``None`` for what there is not."""
        return (self.evaluator, self.rewriter, self.pruner, self.relevance_filter, *self.rerankers)

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """By which part of the deadline searching, reading, reranking and filtering by relevance have to be done."""
        if self.rewriter is not None:
            return 0.4, 0.5, 0.6, 0.7
        if self.relevance_filter is not None:
            return 0.5, 0.6, 0.75, 0.9
        return (0.5, 0.6, 0.95, 1.0) if self.rerankers else (0.8, 1.0, 1.0, 1.0)

    @property
    def share_of_indexes(self) -> float:
        """By which part of the deadline several indexes must have answered: as long as one may search and read."""
        return min(0.95, self.shares[1])


@dataclass(frozen=True, slots=True)
class Bounds:
    """One run, bound for each stage to the part of the deadline by which it has to be done, so that the next has time.

    The parts are those of the first search. Later ones, for other words, share what it left.
    """

    search: Run
    select: Run
    rerank: Run
    relevance: Run
    rewrite: Run

    @classmethod
    def of(cls, run: Run, stages: Stages) -> Bounds:
        """Return the bounds for the stages that there are."""
        first = run.in_round(1)  # rewriting belongs to no search
        rewrite = run if stages.rewriter is None else run.until(0.95)
        return cls(*[first if share == 1 else first.until(share) for share in stages.shares], rewrite=rewrite)

    def in_round(self, number: int) -> Bounds:
        """Return the bounds of a later search for other words; its number is at least 2."""
        run = self.rewrite.in_round(number)
        return Bounds(run, run, run, run, self.rewrite)


class SearchOnce(Protocol):
    """Searches for the question or, in a later round, for another one in its place."""

    async def __call__(self, bounds: Bounds, again: Query | None) -> Searched:
        """Return what was found; ``again`` is ``None`` in the first round.

        Raises:
            RetrievalError: Something is set up or asked wrongly; or, with ``strict``, anything failed.
        """
        ...


async def search_in_rounds(
    run: Run, stages: Stages, plan: Plan, question: str, *, search_once: SearchOnce, config: RetrievalConfig
) -> Rewriting:
    """Search for a question and, where that does badly and there is a rewriter, for others in its place.

    Args:
        run: Makes the calls.
        stages: What works on the hits.
        plan: Says how many hits are wanted.
        question: What the stages hold the hits against, whatever is searched for.
        search_once: One search.
        config: The settings of the stages.

    Raises:
        RetrievalError: Something is set up or asked wrongly; or, with ``strict``, anything failed.
    """
    bounds, later, strict = Bounds.of(run, stages), count(2), config.strict

    async def one_round(bounds: Bounds, again: Query | None = None) -> Round:
        searched = await search_once(bounds, again)
        hits, failures, degraded = searched.hits, searched.failures, searched.degraded
        if stages.rerankers and hits:
            reranked = await rerank(
                bounds.rerank, stages.rerankers, question, hits, config.reranker, cache=stages.reranked
            )
            raise_faults(reranked.failures, strict=strict, is_fault=_is_fault_of_an_improvement)
            hits = weighted(reranked.hits, searched.weights) if searched.weights else reranked.hits
            failures, degraded = failures + reranked.failures, degraded + reranked.degraded
        if strict and degraded:
            raise SearchError("; ".join(f"{item.stage}: {item.reason}" for item in degraded))
        hits = selected = hits[: plan.top_k]
        filtered = None
        if stages.relevance_filter is not None and hits:
            filtered = await keep_relevant(
                bounds.relevance,
                stages.relevance_filter,
                question,
                hits,
            )
            raise_faults(filtered.failures, strict=strict)
            hits, failures = filtered.hits, failures + filtered.failures
        could_not_search = searched.error is not None and not selected
        relevance = None if could_not_search else relevance_of(selected, filtered)
        return Round(searched, selected, hits, failures, degraded, relevance)

    rewriting = Rewriting(await one_round(bounds))
    if stages.rewriter is not None:
        rewriting = await rewrite_while_poor(
            bounds.rewrite,
            stages.rewriter,
            rewriting.best,
            search_again=lambda again: one_round(bounds.in_round(next(later)), again),
            context_of=lambda searched: context_of(searched.hits, config).text,
            threshold=config.rewriter.relevance_threshold,
            max_attempts=config.rewriter.max_attempts,
            settings=config.query,
        )
        # Each search has raised what it must: what one of several indexes cannot do is not to hide the others' hits.
        raise_faults((item for item in rewriting.failures if item.stage == "rewrite"), strict=strict)
    best = rewriting.best
    if stages.pruner is not None and best.hits:
        pruned = await prune(run, stages.pruner, question, best.hits)
        raise_faults(pruned.failures, strict=strict, is_fault=_is_fault_of_an_improvement)
        best = replace(best, hits=pruned.hits, failures=best.failures + pruned.failures)
        rewriting = replace(rewriting, best=best)
    return rewriting


def _is_fault_of_an_improvement(error: Exception) -> bool:
    """Whether to raise the error of a stage that only improves on the hits there are.

    What is not installed there, package or model, can be done without like what fails, and is listed like it.
    """
    return is_callers_fault(error) and not isinstance(error, (MissingExtraError, ModelNotFoundError))


def context_of(hits: tuple[Hit, ...], config: RetrievalConfig) -> FormattedContext:
    """Return the hits as one text."""
    return format_context(
        hits,
        template=config.format.template,
        delimiter=config.format.delimiter,
        include_scores=config.format.include_scores,
        max_length=config.format.max_context_length,
    )
