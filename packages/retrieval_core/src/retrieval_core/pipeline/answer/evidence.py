"""Finding what an answer, or a context, is made from: a result, and the pack of its passages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.pipeline.answer.asked import Evidence, Search
from retrieval_core.pipeline.cache.cached_retrieval import CachedRetrieval
from retrieval_core.pipeline.context import make_context, with_budget
from retrieval_core.pipeline.planning import make_plan
from retrieval_core.pipeline.search_loop import Parts
from retrieval_core.pipeline.stages.normalize import normalize

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retrieval_core.config import ContextConfig, RetrievalConfig
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.ports import TokenCounter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query, RetrievalResult

    Find = Callable[[Run], Awaitable[Evidence]]


class EvidenceFinder:
    """Finds the passages for a question and puts them into a pack.

    Args:
        parts: What the stages use.
        config: The settings of every query.
        find: Finds the result of a query, as configured.
        counter: Gives what measures the pack.
    """

    def __init__(
        self,
        parts: Parts,
        config: RetrievalConfig,
        find: Callable[[Run, Query, Plan], Awaitable[RetrievalResult]],
        counter: Callable[[], TokenCounter],
    ) -> None:
        self._parts = parts
        self._config = config
        self._find = find
        self._counter = counter

    def full(self, query: str, filters: Filters, max_tokens: int | None, options: QueryOptions) -> Find:
        """Return the configured search for a question, checked as far as that can be done before.

        Raises:
            RetrievalError: Something is asked wrongly.
        """
        settings = with_budget(self._config.context, max_tokens)
        plan = make_plan(self._parts, self._config, filters, options)
        primaries = plan.top_k
        if self._parts.relevance_filter is None:  # so that the ledger and the trace name what was reranked in vain
            plan = replace(plan, top_k=plan.shortlist)
        normal = normalize(query, self._config.query)

        async def find(run: Run) -> Evidence:
            return await self._packed(run, await self._find(run, normal, plan), plan, settings, primaries)

        return find

    def searches(
        self, query: str, filters: Filters, max_tokens: int | None, options: QueryOptions
    ) -> tuple[Search, ...]:
        """Return the configured search, and the one that stands in for it: by meaning alone, with nothing beside it.

        Raises:
            RetrievalError: Something is asked wrongly.
        """
        full = Search(self.full(query, filters, max_tokens, options))
        if self._parts.embedder is None:
            return (full,)
        bare = Parts(replace(self._parts.sources, retrievers={}))
        plan = make_plan(bare, self._config, filters, {**options, "mode": "dense", "transforms": ()})
        settings, normal = with_budget(self._config.context, max_tokens), normalize(query, self._config.query)

        async def find_by_meaning(run: Run) -> Evidence:
            result = await CachedRetrieval(bare, self._config, None).retrieve(run, normal, plan)
            return await self._packed(run, result, plan, settings, plan.top_k)

        return full, Search(find_by_meaning, "dense")

    async def _packed(
        self, run: Run, result: RetrievalResult, plan: Plan, settings: ContextConfig, primaries: int
    ) -> Evidence:
        pack = await make_context(
            run,
            result,
            settings,
            self._counter(),
            primaries=primaries,
            store=self._parts.store,
            condition=plan.condition,
            strict=self._config.strict,
        )
        return Evidence(result, pack)
