"""What happens to a query: the whole of it, on one page.

::

    key         a digest of the plan, of all stages and of the store's version
    cache       the result of the same query, or of one with the same meaning
    once        Transform
    each round  Search, Fuse, Select, Rerank, TopK, DropIrrelevant
    rewrite     ... and again in other words, while too little was found
    at last     Prune, CheckFilter, Judge, Format, Evaluate
    cache       keeps the result, if nothing failed

Your own stages run after the one that they name in ``after``. Several indexes have SearchIndexes and Merge in place of
Search, Fuse and Select.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError, MalformedAnswerError, SearchError
from retrieval_core.pipeline.results import as_asked, make_result, with_failures
from retrieval_core.pipeline.stages.rewrite import better_of, searching_again
from retrieval_core.pipeline.stages.state import SearchState, Stage
from retrieval_core.pipeline.stages.transform import Transform
from retrieval_core.ports import held_index
from retrieval_core.run.outcomes import Failed, is_callers_fault, value_of
from retrieval_core.run.sync import SingleFlight, to_a_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from retrieval_core.pipeline.cache.kept import CacheKey, KeptResults
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.pipeline.stages.search import Sources
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Degradation, Query, RetrievalResult

REWRITE_SHARE = 0.95
"""The part of the deadline by which all searches for rewritten queries must be done."""


class Engine:
    """Runs the stages of queries, identical ones at the same time once.

    Args:
        stages: All of them, in order.
        plan: Combines settings and the arguments of a query.
        kept: Knows the cached results; ``None`` if results are neither cached nor shared.
        strict: Whether any failure is raised.
        sources: What is searched; ``None`` for several indexes.
    """

    def __init__(
        self,
        stages: Stages,
        plan: Callable[[Filters, QueryOptions], Plan],
        kept: KeptResults | None,
        *,
        strict: bool,
        sources: Sources | None = None,
    ) -> None:
        self.stages = stages
        self._plan = plan
        self._kept = kept
        self._strict = strict
        self._sources = sources
        self._deadlines = deadlines_of(stages.all)
        embedder = None if sources is None or sources.questions is None else sources.questions.embedder
        self.plugins = stages.plugins
        # Transformers are only called if the plan has any, see _waits().
        others = (plugin for stage in stages.all if stage.name != Transform.name for plugin in stage.plugins())
        self._is_plain = all(plugin is None or plugin is embedder for plugin in others)
        self._flights: SingleFlight[RetrievalResult] = SingleFlight()
        self._logged: set[Degradation] = set()

    def plan(self, filters: Filters, options: QueryOptions) -> Plan:
        """Return the plan of a query: settings and arguments, put together and checked."""
        return self._plan(filters, options)

    async def retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query: from the cache, from the same search under way, or from a search of its own.

        Raises:
            RetrievalError: As :meth:`RetrievalPipeline.aretrieve`.
        """
        state = self._at_hand(SearchState.of(query, plan))
        if waits := self._waits(state):
            await to_a_loop()
        key = None if self._kept is None else await self._kept.key(run, state)
        if self._kept is None or key is None:  # two results can't be known to be the same
            return await self._search(run, state, None)
        found = await self._kept.find(run, key)
        if isinstance(found, Failed):
            state = self._admit(state.failing(found), state)
        elif found is not None:
            return as_asked(found, query, run.elapsed_ms, from_cache=True, trace=run.records)
        if not waits:  # so that nobody can join
            return await self._search(run, state, key)
        result = await self._flights.run(key.flight(run), partial(self._search, run, state, key))
        return as_asked(result, query, run.elapsed_ms, from_cache=result.from_cache, trace=result.trace)

    async def _search(self, run: Run, state: SearchState, key: CacheKey | None) -> RetrievalResult:
        if self._kept is not None and key is not None:
            query, found = await self._kept.find_similar(run, key, state.asked)
            state = state.but(asked=query, question=query, query=query)
            if isinstance(found, Failed):
                state = self._admit(state.failing(found), state)
            elif found is not None:
                return with_failures(found, state.failures)
        first = await self._through(self.stages.once, run, state)
        best = await self._through(self.stages.each_round, run.in_round(1), first)
        late = run.until(REWRITE_SHARE) if self.stages.rewrite else run
        while self.stages.rewrite:
            best = await self._through(self.stages.rewrite, late, best)
            if best.again is None:
                break
            again, later = searching_again(first, best), late.in_round(best.attempts + 1)
            best = better_of(best, await self._through(self.stages.each_round, later, again, share_rest=True))
        last = await self._through(self.stages.at_last, run, best)
        result = make_result(run, last, self._logged)
        if self._kept is not None and key is not None:
            failed = await self._kept.keep(run, key, state.asked, result)
            if failed is not None:
                self._admit(state.failing(failed), state)
                return with_failures(result, (failed,))
        return result

    async def _through(
        self, stages: Sequence[Stage], run: Run, state: SearchState, *, share_rest: bool = False
    ) -> SearchState:
        """Return the state after some stages, each bound to the part of the deadline by which it must be done."""
        for stage in stages:
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
            raise SearchError("; ".join(f"{item.stage}: {item.reason}" for item in new))
        return state

    def _at_hand(self, state: SearchState) -> SearchState:
        """Return the state with the index and the vector of the query, if both are in memory."""
        held = None if self._sources is None else held_index(self._sources.store)
        if self._sources is None or held is None:
            return state
        questions = self._sources.questions
        vector = None if questions is None or state.plan.mode == "lexical" else questions.at_hand(state.query)
        query = state.query if vector is None else replace(state.query, embedding=vector)
        return SearchState.of(query, state.plan, held)

    def _waits(self, state: SearchState) -> bool:
        """Return whether a query waits for anything; otherwise it needs no event loop."""
        plan, has_vector = state.plan, state.query.embedding is not None
        if state.held is None or not self._is_plain or plan.transforms or plan.history or plan.variants:
            return True
        if self._kept is None or self._kept.waits or plan.fusion == "native":
            return True
        return not (plan.score_threshold is None if plan.mode == "lexical" else has_vector)

    async def find_kept(self, run: Run, query: Query, plan: Plan) -> RetrievalResult | None:
        """Return the cached result of a query, or of one with the same meaning; nothing is searched."""
        key = None if self._kept is None else await self._kept.key(run, SearchState.of(query, plan))
        if self._kept is None or key is None:
            return None
        found = await self._kept.find(run, key)
        if found is None:
            query, found = await self._kept.find_similar(run, key, query)
        if found is None or isinstance(found, Failed):
            return None
        return as_asked(found, query, run.elapsed_ms, from_cache=True, trace=run.records)


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a query, in order.

    Attributes:
        once: Before the first search.
        each_round: In the search, and in that for each rewritten query.
        rewrite: After each round; at most one stage.
        at_last: On the best round.
    """

    once: tuple[Stage, ...] = ()
    each_round: tuple[Stage, ...] = ()
    rewrite: tuple[Stage, ...] = ()
    at_last: tuple[Stage, ...] = ()

    @property
    def all(self) -> tuple[Stage, ...]:
        """All stages."""
        return (*self.once, *self.each_round, *self.rewrite, *self.at_last)

    @property
    def plugins(self) -> tuple[object, ...]:
        """The plug-ins that the stages call."""
        return tuple([each for stage in self.all for each in stage.plugins() if each is not None])

    def plus(self, own: Iterable[Stage]) -> Stages:
        """Return these stages with your own, each after the one that it names.

        Raises:
            InvalidParameterError: It is no stage, or names none of these.
        """
        groups = [self.once, self.each_round, self.rewrite, self.at_last]
        for stage in own:
            names = [each.name for each in chain(*groups)]
            if not isinstance(stage, Stage):  # pyright: ignore[reportUnnecessaryIsInstance]
                msg = f"a stage is a subclass of retrieval_core.pipeline.Stage, got {stage!r:.80}"
                raise InvalidParameterError(msg)
            if stage.after not in names:
                msg = f"the stage {stage.name!r} runs after {stage.after!r}, which is none of {', '.join(names)}"
                raise InvalidParameterError(msg)
            groups = [tuple(_inserted(group, OwnStage(stage))) for group in groups]
        return Stages(*groups)


def _inserted(group: Sequence[Stage], own: OwnStage) -> Iterable[Stage]:
    for stage in group:
        yield stage
        if stage.name == own.after:
            yield own


class OwnStage(Stage):
    """Calls a stage of a program as a plug-in: within its time, and if it fails, the query goes on without it."""

    def __init__(self, stage: Stage) -> None:
        self.name = stage.name  # pyright: ignore[reportAttributeAccessIssue]
        self.deadline_share = stage.deadline_share
        self.after = stage.after
        self.fingerprint = stage.fingerprint
        self.knowledge = stage.knowledge
        self.is_fault = stage.is_fault
        self._stage = stage

    def plugins(self) -> Iterable[object]:
        """Return the stage itself, which may have something to load or to close, and its plug-ins."""
        return (self._stage, *self._stage.plugins())

    async def __call__(self, run: Run, state: SearchState) -> SearchState:
        """Return the state after the stage, or as it was if the stage failed."""
        outcome = await run.call(self.name, self._stage.__call__, run, state)
        if isinstance(outcome, Failed):
            return state.failing(outcome)
        if not isinstance(outcome.value, SearchState):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = f"the stage returned {outcome.value!r:.80}, which is no SearchState"
            return state.failing(Failed(self.name, MalformedAnswerError(msg)))
        return outcome.value


def deadlines_of(stages: Sequence[Stage]) -> Mapping[Stage, float]:
    """Return the part of the deadline by which each stage must be done: the shares so far of all shares there are.

    A stage without a share has all that is left.
    """
    shares = [stage.deadline_share for stage in stages]
    total = max(1.0, sum(shares))
    so_far = [round(share / total, 6) for share in accumulate(shares)]
    return {stage: at if stage.deadline_share else 1.0 for stage, at in zip(stages, so_far, strict=True)}


@dataclass(frozen=True, slots=True)
class Shares:
    """By which part of the deadline the stages of a pipeline must be done, so that the next ones have time left.

    Attributes:
        search: Searching.
        select: Reading the chunks.
        rerank: Reranking.
        relevance: The relevance filter.
        transform: Transforming the query.
    """

    search: float
    select: float
    rerank: float
    relevance: float
    transform: float = 0.25

    @classmethod
    def of(cls, *, reranks: bool = False, filters: bool = False, rewrites: bool = False) -> Shares:
        """Return the shares for the stages that there are."""
        if rewrites:
            return cls(0.4, 0.5, 0.6, 0.7)
        if filters:
            return cls(0.5, 0.6, 0.75, 0.9)
        return cls(0.5, 0.6, 0.95, 1.0) if reranks else cls(0.8, 1.0, 1.0, 1.0)

    @property
    def indexes(self) -> float:
        """By which part several indexes must have answered: as long as one may search and read."""
        return min(0.95, self.select)
