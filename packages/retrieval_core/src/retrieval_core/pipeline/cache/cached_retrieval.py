"""One result for a query: from the cache, from a run for the same query that is under way, or from a run of its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from math import ceil
from typing import TYPE_CHECKING

from retrieval_core.pipeline.cache.key import fingerprint_of, partition_key, result_key
from retrieval_core.pipeline.cache.lookup import ask_cache, keep
from retrieval_core.pipeline.cache.similar import SimilarQuestions
from retrieval_core.pipeline.planning import make_plan, sides_of
from retrieval_core.pipeline.results import make_result, with_failures
from retrieval_core.pipeline.search_index import Parts, search_index
from retrieval_core.pipeline.stages.judge import judge
from retrieval_core.pipeline.stages.unmatched import find_unknown_fields
from retrieval_core.ports import Versioned
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.outcomes import Failed, Ok, raise_faults
from retrieval_core.run.single_flight import SingleFlight
from retrieval_core.run.sync import to_a_loop
from retrieval_core.types import RetrievalResult, freeze
from retrieval_core.types.filters import chunk_fields

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.ports import ResultCache, Side
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.runner import Run
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import JSON, Degradation, Query, StageRecord


NAMING_SHARE = 0.2
"""The part of the deadline by which the states of the store, and of what transformers and retrievers know, must be
named for a result to be kept: what hangs then leaves time to answer without the cache."""


@dataclass(frozen=True, slots=True)
class _Names:
    """What names a result.

    Attributes:
        key: Under which it is kept.
        has_version: Whether the store reports its version. Without one, nothing shows whether the store changed after a
            result was made, so the result is not cached.
        partition: Names everything but the question; ``None`` where questions are not compared.
    """

    key: str
    has_version: bool
    partition: str | None = None

    @property
    def flight(self) -> str:
        """Whoever asks with this name may share one run: also the one question with whose results it is compared."""
        return self.key if self.partition is None else f"{self.key} {self.partition}"


class CachedRetrieval:
    """Finds the passages for queries, each kind of them once at a time and, with a cache, once for a while.

    Args:
        parts: What the stages use.
        config: The settings of every query.
        cache: Keeps results for the next time, if the store has a version.
        clock: Tells how old a question is; the system's where it is not given.
    """

    def __init__(
        self, parts: Parts, config: RetrievalConfig, cache: ResultCache | None, clock: Clock | None = None
    ) -> None:
        self.cache = cache
        self._parts = parts
        self._config = config
        self._flights: SingleFlight[RetrievalResult] = SingleFlight()
        self._epoch = 0
        self._logged: set[Degradation] = set()
        self._plain: tuple[frozenset[Side], Plan] | None = None
        self._versioned = parts.store if isinstance(parts.store, Versioned) else None
        self._similar: SimilarQuestions | None = None
        questions = parts.sources.questions
        if cache is not None and questions is not None and config.cache.is_on and config.cache.semantic.enabled:
            self._similar = SimilarQuestions(cache, questions, config.cache, (clock or SystemClock()).now)

    async def forget(self) -> None:
        """Forget every result that was kept.

        Raises:
            ServiceError: A shared cache cannot be reached; this process does not use its results any more.
        """
        self._epoch += 1
        if self._similar is not None:
            self._similar.known.clear()
        if self.cache is not None:
            await self.cache.clear()

    def plan(self, filters: Filters, options: QueryOptions) -> Plan:
        """Put settings and a caller's arguments together; see :func:`make_plan`."""
        if options or filters is not None:
            return make_plan(self._parts, self._config, filters, options)
        sides = sides_of(self._parts.store)
        if self._plain is None or self._plain[0] != sides:  # a store may learn what it can do
            self._plain = sides, make_plan(self._parts, self._config, None, options)
        return self._plain[1]

    async def retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query, from the cache or from the stages.

        Raises:
            RetrievalError: As :meth:`RetrievalPipeline.aretrieve`.
        """
        names = await self._names(run, query, plan) if plan.use_cache else None
        if names is None:
            return await self._search(run, query, plan)
        failures: tuple[Failed, ...] = ()
        cache = self.cache if names.has_version else None
        if cache is not None:
            cached = await ask_cache(run, cache, names.key)
            if isinstance(cached, Failed):
                raise_faults((cached,), strict=self._config.strict)
                failures = (cached,)
            elif cached is not None:
                return _from_cache(run, query, cached)
        # Whoever joins began later with the same time budget, so the run under way ends before theirs is over.
        flight = names.flight if run.seconds is None else f"{names.flight} {ceil(run.seconds)}"
        result = await self._flights.run(flight, lambda: self._search_and_keep(run, names, query, plan, failures))
        return _told(result, query, run.elapsed_ms, from_cache=result.from_cache, trace=result.trace)

    async def kept(self, run: Run, query: Query, plan: Plan) -> RetrievalResult | None:
        """Return what is kept for a query, or for one that asks the same; nothing is searched."""
        names = await self._names(run, query, plan) if plan.use_cache else None
        if names is None or self.cache is None or not names.has_version:
            return None
        found = await ask_cache(run, self.cache, names.key)
        if found is None and self._similar is not None and names.partition is not None:
            query = await self._similar.embed(run, query)
            if query.embedding is not None:
                found = await self._similar.ask(run, query, query.embedding, names.partition)
        if found is None or isinstance(found, Failed):
            return None
        return _from_cache(run, query, found)

    async def _names(self, run: Run, query: Query, plan: Plan) -> _Names | None:
        """Return what names the result of a query now; ``None`` where two results cannot be known to be the same."""
        if self._fingerprint is None:
            return None
        version: str | None = None
        if self._versioned is not None:
            naming = run.until(NAMING_SHARE).without_retries().on("store")
            outcome = await naming.call("version", self._versioned.version)
            if isinstance(outcome, Failed):  # searching will tell what is wrong
                return None
            version = outcome.value
        parameters: dict[str, JSON] = {
            "mode": plan.mode,
            "top_k": plan.top_k,
            "score_threshold": plan.score_threshold,
            "truncated": query.truncated,
        }
        if plan.transforms or self._parts.sources.retrievers:
            identities = await self._identities(run, plan)
            if identities is None:
                return None
            parameters["plugged_in"] = identities
        if plan.variants:
            parameters["variants"] = tuple(
                [
                    (each.kind, each.text, tuple(sorted(each.sides)), each.is_passage, each.weight)
                    for each in plan.variants
                ]
            )
        if plan.history:
            parameters["history"] = tuple([(turn.role, turn.content) for turn in plan.history])
        if plan.options:
            parameters["options"] = freeze(plan.options)
        name = partial(
            result_key,
            filters=plan.condition,
            parameters=parameters,
            fingerprint=self._fingerprint,
            version=version,
            epoch=self._epoch,
        )
        has_version = version is not None
        if self._similar is None or not has_version or not self._similar.is_for(plan):
            return _Names(name(query=query.text), has_version)
        return _Names(
            name(query=query.text), has_version, partition_key(self._similar.session_of(plan), name(query=""))
        )

    async def _identities(self, run: Run, plan: Plan) -> tuple[JSON, ...] | None:
        """Return what names each transformer and retriever as it is now; ``None`` where one of them does not tell."""
        chosen = {f"transform {name}": self._parts.transformers[name] for name in plan.transforms}
        plugged_in = chosen | {f"retriever {name}": part for name, part in self._parts.sources.retrievers.items()}
        identities: list[JSON] = []
        for name, part in plugged_in.items():
            version: str | None = None
            if isinstance(part, Versioned):  # what it knows may change, as a graph's file does
                outcome = await run.until(NAMING_SHARE).without_retries().on(name).call("version", part.version)
                if isinstance(outcome, Failed) or outcome.value is None:
                    return None
                version = outcome.value
            identity = getattr(part, "id", "")
            if not identity:
                return None
            identities.append((name, identity, version))
        return freeze(identities)

    @cached_property
    def _analyzer(self) -> Analyzer:
        from retrieval_core.text.analysis import Analyzer  # noqa: PLC0415 - brings an extension module

        analysis = self._config.analysis
        return Analyzer(analysis.language, stop_words=analysis.stop_words)

    @cached_property
    def _fingerprint(self) -> str | None:
        return fingerprint_of(self._parts, self._config)

    async def _search_and_keep(
        self, run: Run, names: _Names, query: Query, plan: Plan, failures: tuple[Failed, ...]
    ) -> RetrievalResult:
        similar, partition = self._similar, names.partition
        if similar is not None and partition is not None:
            query = await similar.embed(run, query)
            if query.embedding is not None:
                found = await similar.ask(run, query, query.embedding, partition)
                if isinstance(found, Failed):
                    raise_faults((found,), strict=self._config.strict)
                    failures += () if failures else (found,)
                elif found is not None:
                    return with_failures(found, failures)
        result = with_failures(await self._search(run, query, plan), failures)
        if self.cache is None or not names.has_version or any(entry.stage != "filter" for entry in result.degraded):
            return result
        kept = await keep(run, self.cache, names.key, result)
        if isinstance(kept, Ok):
            if similar is not None and partition is not None and query.embedding is not None:
                similar.known.add(partition, query.text, query.embedding, names.key)
            return result
        raise_faults((kept,), strict=self._config.strict)
        return with_failures(result, (kept,))

    async def _search(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        await to_a_loop()
        rewriting = await search_index(run, self._parts, query, plan, self._config)
        searched, unknown_fields = rewriting.best.searched, None
        if searched.found is not None and plan.condition is not None:
            seen = (chunk_fields(hit.chunk) for hit in searched.hits)
            unknown_fields = await find_unknown_fields(run, self._parts.store, plan.condition, seen)
        relevance = None
        if searched.found is not None:
            embedder = self._parts.embedder
            relevance = await judge(
                run,
                self._parts.store,
                searched.found,
                rewriting.best.hits,
                embedder_id=None if embedder is None else embedder.id,
                analyzer=self._analyzer,
                condition=plan.condition,
                abstain_below=self._config.answer.abstain_below,
                has_words=plan.has_words,
            )
        evaluator = self._parts.evaluator
        return await make_result(
            run,
            query,
            rewriting,
            plan.condition,
            self._config,
            evaluator=evaluator,
            unknown_fields=unknown_fields,
            logged=self._logged,
            relevance=relevance,
        )


def _from_cache(run: Run, query: Query, kept: RetrievalResult) -> RetrievalResult:
    return _told(kept, query, run.elapsed_ms, from_cache=True, trace=run.records)


def _told(
    result: RetrievalResult, query: Query, latency_ms: float, *, from_cache: bool, trace: tuple[StageRecord, ...]
) -> RetrievalResult:
    """Return a result as this caller asked for it; written out, since ``replace`` takes four times as long."""
    return RetrievalResult(
        query.original,
        result.hits,
        result.formatted_context,
        result.metadata,
        latency_ms,
        from_cache,
        result.degraded,
        trace,
        result.rewrites,
        result.evaluation,
        result.relevance,
    )
