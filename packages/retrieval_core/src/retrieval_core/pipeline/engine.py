"""The way of a query, on one page. The stages and their order are in ``stage_list``.

::

    key         a digest of the plan, of all stages and of the versions of the stores
    cache       the result of the same query, or of one with the same meaning
    once        ReadSyntax, Transform
    each round  Search, Fuse, CheckPhrases, Select, Rerank, TopK, DropIrrelevant
    rewrite     ... and again in other words, while too little was found
    at last     Prune, CheckFilter, Judge, Format, Evaluate
    cache       keeps the result, if nothing failed

Your own stages run after the one that they name in ``after``. Several indexes have SearchIndexes and Merge in place of
Search, Fuse and Select; SearchIndexes runs the stages of each index, from the same state.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.errors import SearchError
from retrieval_core.pipeline.results import as_asked, make_result, with_failures
from retrieval_core.pipeline.stage_list import deadlines_of
from retrieval_core.pipeline.stages.state import SearchState, Stage
from retrieval_core.pipeline.stages.syntax import without_missing_phrases
from retrieval_core.pipeline.stages.transform import Transform, better_of, searching_again
from retrieval_core.run.outcomes import Failed, is_callers_fault, value_of
from retrieval_core.run.sync import SingleFlight, to_a_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.pipeline.cache import CacheKey, KeptResults
    from retrieval_core.pipeline.options import Filters, QueryOptions
    from retrieval_core.pipeline.stage_list import Stages
    from retrieval_core.pipeline.stages.search import Sources
    from retrieval_core.pipeline.stages.state import Plan
    from retrieval_core.ports import HeldIndex
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Degradation, Query, RetrievalResult

REWRITE_SHARE = 0.95
"""The part of the deadline by which all searches for rewritten queries must be done."""


class Engine:
    """Runs the stages of queries, identical ones at the same time once.

    Args:
        stages: All of them, in order.
        plan: Combines settings and the arguments of a query.
        kept: Knows the cached results.
        strict: Whether any failure is raised.
        sources: What is searched; ``None`` for several indexes.
    """

    def __init__(
        self,
        stages: Stages,
        plan: Callable[[Filters, QueryOptions], Plan],
        kept: KeptResults,
        *,
        strict: bool,
        sources: Sources | None = None,
    ) -> None:
        self.stages = stages
        self.plugins = stages.plugins
        self.knowledge = stages.knowledge
        self.plan = plan
        self.kept = kept
        self._strict = strict
        self._sources = sources
        self._deadlines = deadlines_of(stages.all)
        embedder = None if sources is None or sources.questions is None else sources.questions.embedder
        # Transformers are only called if the plan has any, see _waits().
        others = (plugin for stage in stages.all if stage.name != Transform.name for plugin in stage.plugins())
        self._is_plain = all(plugin is None or plugin is embedder for plugin in others)
        self._flights: SingleFlight[RetrievalResult] = SingleFlight()
        self._logged: set[Degradation] = set()

    @property
    def fingerprint(self) -> str | None:
        """A name for the settings of all stages; ``None`` if results of one of them must not be cached."""
        return self.stages.fingerprint

    async def retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query: from the cache, from the same search under way, or from a search of its own.

        Raises:
            RetrievalError: As :meth:`RetrievalPipeline.aretrieve`.
        """
        held = None if self._sources is None else self._sources.store.held()
        key = await self.kept.key(run, query, plan, held)
        found = None if key is None else await self.kept.find(run, key)
        if found is not None and not isinstance(found, Failed):
            return as_asked(found, query, run.elapsed_ms, from_cache=True, trace=run.records)
        state = self.start(query, plan, held)
        if found is not None:
            state = self._admit(state.failing(found), state)
        if waits := self._waits(state):
            await to_a_loop()
        if key is None or not waits:  # two results can't be known to be the same, or nobody can join
            return await self._result(run, state, key)
        result = await self._flights.run(key.flight(run), partial(self._result, run, state, key))
        return as_asked(result, query, run.elapsed_ms, from_cache=result.from_cache, trace=result.trace)

    async def _result(self, run: Run, state: SearchState, key: CacheKey | None) -> RetrievalResult:
        """Return the result of a query with the same meaning, or of a search, which is then kept."""
        if key is not None:
            query, found = await self.kept.find_similar(run, key, state.asked)
            if query is not state.asked:  # it has a vector now
                state = state.but(asked=query, question=query, query=query)
            if isinstance(found, Failed):
                state = self._admit(state.failing(found), state)
            elif found is not None:
                return with_failures(found, state.failures)
        result = make_result(run, await self.search(run, state), self._logged)
        if key is not None and (failed := await self.kept.keep(run, key, state.asked, result)) is not None:
            self._admit(state.failing(failed), state)
            return with_failures(result, (failed,))
        return result

    async def search(self, run: Run, state: SearchState) -> SearchState:
        """Return the last state of a query: the stages in order, again in other words while too little was found."""
        first = await self._through(self.stages.once, run, state)
        best = await self._through(self.stages.each_round, run.in_round(1), first)
        if state.shared_vectors is None and (relaxed := without_missing_phrases(first, best)) is not None:
            first, best = relaxed, await self._through(self.stages.each_round, run.in_round(1), relaxed)
        late = run.until(REWRITE_SHARE) if self.stages.rewrite else run
        while self.stages.rewrite:
            best = await self._through(self.stages.rewrite, late, best)
            if best.again is None:
                break
            again, later = searching_again(first, best), late.in_round(best.attempts + 1)
            best = better_of(best, await self._through(self.stages.each_round, later, again, share_rest=True))
        return await self._through(self.stages.at_last, run, best)

    async def _through(
        self, stages: Sequence[Stage], run: Run, state: SearchState, *, share_rest: bool = False
    ) -> SearchState:
        """Return the state after some stages, each bound to the part of the deadline by which it must be done."""
        for stage in stages:
            if stage.on_merged and state.shared_vectors is not None:  # one of several indexes
                continue
            deadline = 1.0 if share_rest else self._deadlines[stage]
            before, state = state, await stage(run if deadline >= 1 else run.until(deadline), state)
            if state.failures is not before.failures or state.degraded is not before.degraded:
                self._admit(state, before, stage.is_fault)
        return state

    def _admit(
        self,
        state: SearchState,
        before: SearchState,
        is_fault: Callable[[Exception, SearchState], bool] = lambda error, _: is_callers_fault(error),
    ) -> SearchState:
        """Raise what is new in a state and must not be hidden: this is the one place that decides it."""
        for failure in state.failures[len(before.failures) :]:
            if self._strict or is_fault(failure.error, state):
                value_of(failure)
        if self._strict and (new := state.degraded[len(before.degraded) :]):
            raise SearchError("; ".join(f"{item.stage}: {item.reason}" for item in new), {"degraded": new})
        return state

    def start(self, query: Query, plan: Plan, held: HeldIndex | None) -> SearchState:
        """Return the first state of a query: if the index is held in memory, with the query's vector if it is too."""
        if self._sources is None or held is None:
            return SearchState.of(query, plan)
        questions = self._sources.questions
        vector = None if questions is None or plan.mode == "lexical" else questions.at_hand(query)
        return SearchState.of(query if vector is None else replace(query, embedding=vector), plan, held)

    def _waits(self, state: SearchState) -> bool:
        """Return whether a query waits for anything; otherwise it needs no event loop."""
        plan, has_vector = state.plan, state.query.embedding is not None
        if state.held is None or not self._is_plain or plan.transforms or plan.history or plan.variants or plan.intent:
            return True
        if self.kept.waits or plan.fusion == "native":
            return True
        return not (plan.score_threshold is None if plan.mode == "lexical" else has_vector)

    async def find_kept(self, run: Run, query: Query, plan: Plan) -> RetrievalResult | None:
        """Return the cached result of a query, or of one with the same meaning; nothing is searched."""
        key = await self.kept.key(run, query, plan)
        if key is None:
            return None
        found = await self.kept.find(run, key)
        if found is None:
            query, found = await self.kept.find_similar(run, key, query)
        if found is None or isinstance(found, Failed):
            return None
        return as_asked(found, query, run.elapsed_ms, from_cache=True, trace=run.records)
