"""One search after another, each through all stages, until one is good enough."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from retrieval_core.errors import (
    MissingExtraError,
    ModelNotFoundError,
    RetrievalError,
    SearchError,
    ServiceConnectionError,
    as_embedding_error,
)
from retrieval_core.pipeline.stages.format import FormattedContext, format_context
from retrieval_core.pipeline.stages.fuse import Ranked, fuse, merge, with_cosines
from retrieval_core.pipeline.stages.prune import prune
from retrieval_core.pipeline.stages.query_expansion import search_beside
from retrieval_core.pipeline.stages.relevance import keep_relevant, relevance_of
from retrieval_core.pipeline.stages.rerank import rerank
from retrieval_core.pipeline.stages.rewrite import Rewriting, rewrite_while_poor
from retrieval_core.pipeline.stages.search import search
from retrieval_core.pipeline.stages.select import Selected, depth_of, select
from retrieval_core.pipeline.stages.transform import SearchedQuestion, transform
from retrieval_core.run.outcomes import Failed, Ok, is_callers_fault, is_damage
from retrieval_core.types import Scores

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.pipeline.stages.prune import Pruned
    from retrieval_core.pipeline.stages.query_expansion import Beside
    from retrieval_core.pipeline.stages.relevance import RelevanceResult
    from retrieval_core.pipeline.stages.rerank import KeptScores, Reranked
    from retrieval_core.pipeline.stages.search import SearchResults, Sources
    from retrieval_core.ports import (
        Embedder,
        Evaluator,
        Pruner,
        QueryTransformer,
        RelevanceFilter,
        Reranker,
        Rewriter,
        Store,
    )
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Hit, Query


T = TypeVar("T")

TRANSFORM_SHARE = 0.25
"""The part of the deadline by which a question must be transformed."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a pipeline is made of."""

    sources: Sources
    condenser: QueryTransformer | None = None
    transformers: Mapping[str, QueryTransformer] = field(default_factory=dict[str, "QueryTransformer"])
    rerankers: tuple[Reranker, ...] = ()
    relevance_filter: RelevanceFilter | None = None
    pruner: Pruner | None = None
    rewriter: Rewriter | None = None
    evaluator: Evaluator | None = None
    reranked: KeptScores | None = None

    @property
    def plugged_in(self) -> tuple[object, ...]:
        """Everything but store and transformers, ``None`` for what there is not."""
        models = (self.evaluator, self.rewriter, self.pruner, self.relevance_filter, *self.rerankers, self.condenser)
        return (*models, *self.sources.retrievers.values(), self.embedder)

    @property
    def store(self) -> Store:
        """Where is searched."""
        return self.sources.store

    @property
    def embedder(self) -> Embedder | None:
        """What embeds the questions."""
        questions = self.sources.questions
        return None if questions is None else questions.embedder


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
    def of(cls, run: Run, parts: Parts) -> Bounds:
        """Return the bounds for the stages that there are."""
        first = run.in_round(1)  # rewriting belongs to no search
        if parts.rewriter is not None:
            return cls(first.until(0.4), first.until(0.5), first.until(0.6), first.until(0.7), run.until(0.95))
        if parts.relevance_filter is not None:
            return cls(first.until(0.5), first.until(0.6), first.until(0.75), first.until(0.9), run)
        if parts.rerankers:
            return cls(first.until(0.5), first.until(0.6), first.until(0.95), first, run)
        return cls(first.until(0.8), first, first, first, run)

    def in_round(self, number: int) -> Bounds:
        """Return the bounds of a later search for other words; its number is at least 2."""
        run = self.rewrite.in_round(number)
        return Bounds(run, run, run, run, self.rewrite)


@dataclass(frozen=True, slots=True)
class Round:
    """What one search came to.

    Attributes:
        relevance: In [0, 1]; ``None`` where there is nothing to tell it by, or nothing could be searched.
    """

    found: SearchResults
    selected: Selected
    beside: tuple[Beside, ...] = ()
    failed_beside: tuple[Failed, ...] = ()
    reranked: Reranked | None = None
    filtered: RelevanceResult | None = None
    relevance: float | None = None
    pruned: Pruned | None = None

    @property
    def query(self) -> Query:
        """What was searched for."""
        return self.found.query

    @property
    def hits(self) -> tuple[Hit, ...]:
        """The hits that are left."""
        last = self.pruned or self.filtered or self.selected
        return last.hits

    @property
    def failures(self) -> tuple[Failed, ...]:
        """What failed on the way."""
        failures = (*self.found.failures, *self.failed_beside)
        if (failure := self.selected.failure) is not None and all(failure is not item for item in failures):
            failures += (failure,)
        for stage in (self.reranked, self.filtered, self.pruned):
            failures += () if stage is None else stage.failures
        return failures


async def search_in_rounds(
    run: Run, parts: Parts, query: Query, plan: Plan, config: RetrievalConfig
) -> Rewriting[Round]:
    """Search for a question and, where that does badly and there is a rewriter, for others in its place.

    Raises:
        RetrievalError: Something is set up or asked wrongly; or, with ``strict``, anything failed.
    """
    bounds = Bounds.of(run, parts)
    asked = SearchedQuestion(query)
    if plan.transforms or plan.history:
        asked = await transform(
            run.until(TRANSFORM_SHARE),
            query,
            plan,
            condenser=parts.condenser,
            transformers=parts.transformers,
            settings=config.query,
        )
        raise_what_must_not_be_hidden(asked.failures, strict=config.strict)
    search_once = partial(_search_once, parts=parts, question=asked.query.text, plan=plan, config=config)
    rewriting = Rewriting(await search_once(bounds, asked, is_first=True))
    if parts.rewriter is not None:
        rewriting = await _rewritten(bounds, parts.rewriter, rewriting.best, search_once, config)
    best = rewriting.best
    if parts.pruner is not None and best.hits:
        pruned = await prune(run, parts.pruner, asked.query.text, best.hits, concurrency=config.pruner.concurrency)
        _raise_unless_missing(pruned.failures, strict=config.strict)
        rewriting = replace(rewriting, best=replace(best, pruned=pruned))
    return replace(rewriting, failures=asked.failures + rewriting.failures) if asked.failures else rewriting


async def _rewritten(
    bounds: Bounds,
    rewriter: Rewriter,
    first: Round,
    search_once: Callable[..., Awaitable[Round]],
    config: RetrievalConfig,
) -> Rewriting[Round]:
    later = count(2)
    rewriting = await rewrite_while_poor(
        bounds.rewrite,
        rewriter,
        first,
        search_again=lambda again: search_once(bounds.in_round(next(later)), SearchedQuestion(again)),
        context_of=lambda result: context_of(result.hits, config).text,
        threshold=config.rewriter.relevance_threshold,
        max_attempts=config.rewriter.max_attempts,
        settings=config.query,
    )
    raise_what_must_not_be_hidden(rewriting.failures, strict=config.strict)
    return rewriting


async def _search_once(
    bounds: Bounds,
    asked: SearchedQuestion,
    *,
    parts: Parts,
    question: str,
    plan: Plan,
    config: RetrievalConfig,
    is_first: bool = False,
) -> Round:
    found, beside, failed_beside = await _search_everything(bounds.search, asked, parts, plan)
    _raise_what_stops_a_search(found, failed_beside, strict=config.strict)
    if not (found.sides or beside):
        if is_first:
            _raise_where_nothing_is_left(found, plan, raise_on_error=config.raise_on_error)
        return Round(found, Selected(failure=found.failures[-1]), failed_beside=failed_beside)
    ranked = _in_one_order(bounds.search, found, beside, plan)
    selected = await select(bounds.select, parts.store, found, ranked, plan, beside=beside)
    if selected.failure is not None:
        raise_what_must_not_be_hidden((selected.failure,), strict=config.strict)
    reranked = None
    if parts.rerankers and selected.hits:
        reranked = await rerank(
            bounds.rerank, parts.rerankers, question, selected.hits, config.reranker, cache=parts.reranked
        )
        _raise_unless_missing(reranked.failures, strict=config.strict)
        selected = replace(selected, hits=reranked.hits, degraded=selected.degraded + reranked.degraded)
    if config.strict and selected.degraded:
        raise SearchError("; ".join(f"{item.stage}: {item.reason}" for item in selected.degraded))
    if len(selected.hits) > plan.top_k:
        selected = replace(selected, hits=selected.hits[: plan.top_k])
    filtered = None
    if parts.relevance_filter is not None and selected.hits:
        filtered = await keep_relevant(
            bounds.relevance,
            parts.relevance_filter,
            question,
            selected.hits,
            concurrency=config.relevance_filter.concurrency,
        )
        raise_what_must_not_be_hidden(filtered.failures, strict=config.strict)
    could_not_read = selected.failure is not None and not selected.hits
    relevance = None if could_not_read else relevance_of(selected.hits, filtered)
    return Round(found, selected, beside, failed_beside, reranked, filtered, relevance)


async def _search_everything(
    run: Run, asked: SearchedQuestion, parts: Parts, plan: Plan
) -> tuple[SearchResults, tuple[Beside, ...], tuple[Failed, ...]]:
    """Search for the question, and at the same time for what is asked beside it."""
    searching = search(run, parts.sources, asked.query, plan)
    if not (asked.variants or asked.linked or parts.sources.retrievers):
        return await searching, (), ()
    found, (beside, failures) = await asyncio.gather(searching, search_beside(run, parts.sources, asked, plan))
    known = {(item.stage, item.reason) for item in found.failures}
    return found, beside, tuple(item for item in failures if (item.stage, item.reason) not in known)


def _in_one_order(run: Run, found: SearchResults, beside: Sequence[Beside], plan: Plan) -> tuple[Ranked, ...]:
    started = run.elapsed_ms
    depth = depth_of(plan)
    method = "rrf" if plan.fusion == "native" else plan.fusion
    if found.both is not None:
        best = tuple(Ranked(item.chunk_id, Scores(fused=item.score, final=item.score)) for item in found.both)
    else:
        dense = found.dense if found.combined is None else found.combined
        limit = None if beside else depth
        best = fuse(dense, found.lexical, method=method, dense_weight=plan.dense_weight, limit=limit)
        if found.combined is not None:
            best = with_cosines(best, found.dense)
    if beside:
        # Short lists, and scores of unknown scale, tell nothing by their distribution; their ranks do.
        method = method if all(other.is_search for other in beside) else "rrf"
        best = merge(best, [(other.ranked, other.weight) for other in beside], method=method, limit=depth)
    count_in = sum(map(len, (*found.sides, *[other.ranked for other in beside])))
    run.note("fuse", started, count_in, len(best))
    return best[:depth]


def _raise_unless_missing(failures: tuple[Failed, ...], *, strict: bool) -> None:
    """Raise what must not be hidden of stages that only improve on the hits there are.

    What is not installed there, package or model, can be done without like what fails, and is listed like it.
    """
    missing = (MissingExtraError, ModelNotFoundError)
    told = failures if strict else tuple(item for item in failures if not isinstance(item.error, missing))
    raise_what_must_not_be_hidden(told, strict=strict)


def context_of(hits: tuple[Hit, ...], config: RetrievalConfig) -> FormattedContext:
    """Return the hits as one text."""
    return format_context(
        hits,
        template=config.format.template,
        delimiter=config.format.delimiter,
        include_scores=config.format.include_scores,
        max_length=config.format.max_context_length,
    )


def raise_what_must_not_be_hidden(failures: tuple[Failed, ...], *, strict: bool) -> None:
    """Raise the first failure that says that something is set up or asked wrongly; with ``strict``, the first one."""
    for failure in failures:
        if strict or is_callers_fault(failure.error):
            value_of(failure)


def _raise_what_stops_a_search(found: SearchResults, failed_beside: tuple[Failed, ...], *, strict: bool) -> None:
    """Raise what must not be hidden, but not that the index cannot be searched by one side where the other one did."""
    for failure in (*found.failures, *failed_beside):
        if strict or not (found.sides and is_damage(failure.error)):
            raise_what_must_not_be_hidden((failure,), strict=strict)


def value_of(outcome: Ok[T] | Failed) -> T:
    """Return what a call gave that nothing can be done without.

    Raises:
        RetrievalError: It failed.
    """
    if isinstance(outcome, Ok):
        return outcome.value
    if isinstance(outcome.error, RetrievalError):
        raise outcome.error
    msg = f"{outcome.stage}: {outcome.reason}"
    raise SearchError(msg) from outcome.error


def _raise_where_nothing_is_left(found: SearchResults, plan: Plan, *, raise_on_error: bool) -> None:
    """Raise that a question could not be embedded, where words are no way out, and what is asked to be raised."""
    last = found.failures[-1]
    if last.stage == "embed" and not plan.has_words:
        raise as_embedding_error(last.error, "the query", found.query.original)
    if raise_on_error:
        if isinstance(last.error, RetrievalError):
            raise last.error
        msg = f"nothing could be searched: {last.reason}"
        raise ServiceConnectionError(msg) from last.error
