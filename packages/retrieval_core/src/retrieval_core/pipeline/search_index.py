"""One search of one index: what the question and its expansion find, in one order, with the chunks read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.errors import as_embedding_error
from retrieval_core.pipeline.search_loop import Stages, search_in_rounds
from retrieval_core.pipeline.stages.fuse import Ranked, fuse, merge
from retrieval_core.pipeline.stages.query_expansion import search_expansions
from retrieval_core.pipeline.stages.search import Searched, search
from retrieval_core.pipeline.stages.select import depth_of, select
from retrieval_core.pipeline.stages.transform import SearchedQuestion, transform
from retrieval_core.run.outcomes import Failed, is_callers_fault, is_damage, raise_faults, raise_nothing_searched
from retrieval_core.types import Scores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.search_loop import Bounds
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.pipeline.stages.query_expansion import Expansion
    from retrieval_core.pipeline.stages.rewrite import Rewriting
    from retrieval_core.pipeline.stages.search import SearchResults, Sources
    from retrieval_core.ports import Candidate, Embedder, QueryTransformer, Store
    from retrieval_core.run.runner import Run
    from retrieval_core.types import JSON, Query

TRANSFORM_SHARE = 0.25
"""The part of the deadline by which a question must be transformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(Stages):
    """What a pipeline is made of."""

    sources: Sources
    condenser: QueryTransformer | None = None
    transformers: Mapping[str, QueryTransformer] = field(default_factory=dict[str, "QueryTransformer"])

    @property
    def plugged_in(self) -> tuple[object, ...]:
        """Everything but store and transformers, ``None`` for what there is not."""
        return (*self.models, self.condenser, *self.sources.retrievers.values(), self.embedder)

    @property
    def store(self) -> Store:
        """Where is searched."""
        return self.sources.store

    @property
    def embedder(self) -> Embedder | None:
        """What embeds the questions."""
        questions = self.sources.questions
        return None if questions is None else questions.embedder


async def search_index(run: Run, parts: Parts, query: Query, plan: Plan, config: RetrievalConfig) -> Rewriting:
    """Transform a question and search for it, in as many rounds as that takes.

    Raises:
        RetrievalError: Something is set up or asked wrongly; or, with ``strict``, anything failed.
    """
    question = SearchedQuestion(query)
    if plan.transforms or plan.history or plan.variants:
        question = await transform(
            run.until(TRANSFORM_SHARE),
            query,
            plan,
            condenser=parts.condenser,
            transformers=parts.transformers,
            settings=config.query,
        )
        raise_faults(question.failures, strict=config.strict)
    search_once = partial(_search_once, first=question, parts=parts, plan=plan, config=config)
    rewriting = await search_in_rounds(run, parts, plan, question.query.text, search_once=search_once, config=config)
    return replace(rewriting, failures=question.failures + rewriting.failures) if question.failures else rewriting


async def _search_once(
    bounds: Bounds,
    again: Query | None,
    *,
    first: SearchedQuestion,
    parts: Parts,
    plan: Plan,
    config: RetrievalConfig,
) -> Searched:
    question = first if again is None else SearchedQuestion(again)
    found, expansions, failures = await _search_everything(bounds.search, question, parts, plan)
    # That the index cannot be searched by one side may be hidden where the other one did.
    raise_faults(
        failures,
        strict=config.strict,
        is_fault=lambda error: is_callers_fault(error) and not (found.sides and is_damage(error)),
    )
    lists: list[Sequence[Candidate | Ranked]] = [*found.sides, *[each.ranked for each in expansions]]
    distinct = len({item.chunk_id for items in lists for item in items})
    metadata: dict[str, JSON] = {"mode": plan.mode, "documents_fetched": distinct}
    if expansions:
        metadata["query_expansion"] = [{"kind": each.origin.kind, "text": each.origin.text} for each in expansions]
    if not lists:
        if again is None:
            _raise_where_nothing_is_left(found, plan, raise_on_error=config.raise_on_error)
        sides = "; ".join(dict.fromkeys(f"{item.stage}: {item.reason}" for item in _vector_side_first(found.failures)))
        return Searched(found.query, failures=failures, error=sides, metadata=metadata, found=found)
    started = bounds.search.elapsed_ms
    ranked = _in_one_order(found, expansions, plan)
    bounds.search.note("fuse", started, sum(map(len, lists)), len(ranked))
    selected = await select(bounds.select, parts.store, found, ranked, plan, expansions=expansions)
    error = None
    if selected.failure is not None:
        raise_faults((selected.failure,), strict=config.strict)
        failures = (*failures, selected.failure)
        error = f"{selected.failure.stage}: {selected.failure.reason}"
    return Searched(found.query, selected.hits, failures, selected.degraded, error, metadata, found)


async def _search_everything(
    run: Run, question: SearchedQuestion, parts: Parts, plan: Plan
) -> tuple[SearchResults, tuple[Expansion, ...], tuple[Failed, ...]]:
    searching = search(run, parts.sources, question.query, plan)
    if not (question.variants or question.linked or parts.sources.retrievers):
        found = await searching
        return found, (), found.failures
    found, (expansions, failures) = await asyncio.gather(
        searching, search_expansions(run, parts.sources, question, plan)
    )
    known = {(item.stage, item.reason) for item in found.failures}
    further = (item for item in failures if (item.stage, item.reason) not in known)
    return found, expansions, (*found.failures, *further)


def _in_one_order(found: SearchResults, expansions: Sequence[Expansion], plan: Plan) -> tuple[Ranked, ...]:
    depth = depth_of(plan)
    method = "rrf" if plan.fusion == "native" else plan.fusion
    if found.both is not None:
        best = tuple(Ranked(item.chunk_id, Scores(fused=item.score, final=item.score)) for item in found.both)
    else:
        limit = None if expansions else depth
        best = fuse(
            found.dense,
            found.lexical,
            method=method,
            dense_weight=plan.dense_weight,
            limit=limit,
            unembedded=found.unembedded,
        )
    if expansions:
        # Short lists, and scores of unknown scale, tell nothing by their distribution; their ranks do.
        method = method if all(each.is_search for each in expansions) else "rrf"
        best = merge(best, [(each.ranked, each.weight) for each in expansions], method=method, limit=depth)
    return best


def _raise_where_nothing_is_left(found: SearchResults, plan: Plan, *, raise_on_error: bool) -> None:
    """Raise that a question could not be embedded, where words are no way out, and what is asked to be raised."""
    last = found.failures[-1]
    if last.stage == "embed" and not plan.has_words:
        raise as_embedding_error(last.error, "the query", found.query.original)
    if raise_on_error:
        raise_nothing_searched(_vector_side_first(found.failures)[0])


def _vector_side_first(failures: Sequence[Failed]) -> list[Failed]:
    return sorted(failures, key=lambda item: item.stage == "lexical")
