"""One result for a query: from the cache, from a run for the same query that is under way, or from a run of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from retrieval_core.cache.key import result_key
from retrieval_core.pipeline.caching import ask_cache, keep
from retrieval_core.pipeline.evaluating import evaluated
from retrieval_core.pipeline.fingerprint import fingerprint_of
from retrieval_core.pipeline.results import make_result, with_troubles
from retrieval_core.pipeline.rounds import Parts, raise_what_must_not_be_hidden, search_in_rounds
from retrieval_core.ports import Versioned
from retrieval_core.run.runner import Failed, Ok
from retrieval_core.run.single_flight import SingleFlight
from retrieval_core.stages.unmatched import why_nothing_passes

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.ports import ResultCache
    from retrieval_core.run.runner import Run
    from retrieval_core.stages.plan import Plan
    from retrieval_core.types import Query, RetrievalResult


class Answering:
    """Answers queries, each kind of them once at a time and, with a cache, once for a while.

    Args:
        parts: What the stages use.
        config: The settings of every query.
        cache: Keeps results for the next time.
    """

    def __init__(self, parts: Parts, config: RetrievalConfig, cache: ResultCache | None) -> None:
        self.cache = cache
        self._parts = parts
        self._config = config
        self._flights: SingleFlight[RetrievalResult] = SingleFlight()
        self._epoch = 0
        self._versioned = parts.store if isinstance(parts.store, Versioned) else None

    async def forget(self) -> None:
        """Forget every result that was kept.

        Raises:
            ServiceError: A shared cache cannot be reached; this process does not use its results any more.
        """
        self._epoch += 1
        if self.cache is not None:
            await self.cache.clear()

    async def answer(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query, from the cache or from the stages.

        Raises:
            RetrievalError: As :meth:`RetrievalPipeline.aretrieve`.
        """
        key = await self._key(run, query, plan)
        if key is None:
            return await self._retrieve(run, query, plan)
        troubles: tuple[Failed, ...] = ()
        if self.cache is not None:
            cached = await ask_cache(run, self.cache, key)
            if isinstance(cached, Failed):
                raise_what_must_not_be_hidden((cached,), strict=self._config.strict)
                troubles = (cached,)
            elif cached is not None:
                latency = run.elapsed_ms
                return replace(cached, query=query.original, from_cache=True, latency_ms=latency, trace=run.records)
        # Whoever joins began later with the same time budget, so the run under way ends before theirs is over.
        result = await self._flights.run(key, lambda: self._retrieve_and_keep(run, key, query, plan, troubles))
        return replace(result, query=query.original, latency_ms=run.elapsed_ms)

    async def _key(self, run: Run, query: Query, plan: Plan) -> str | None:
        """Return what names the result of a query now; ``None`` where two results cannot be known to be the same."""
        if self._fingerprint is None:
            return None
        version: str | None = None
        if self._versioned is not None:
            asked = await run.without_retries().on("store").call("version", self._versioned.version)
            if isinstance(asked, Failed):  # searching will tell what is wrong
                return None
            version = asked.value
        return result_key(
            query=query.text,
            filters=plan.condition,
            parameters={"mode": plan.mode, "top_k": plan.top_k, "truncated": query.truncated},
            fingerprint=self._fingerprint,
            version=version,
            epoch=self._epoch,
        )

    @cached_property
    def _fingerprint(self) -> str | None:
        return fingerprint_of(self._parts, self._config)

    async def _retrieve_and_keep(
        self, run: Run, key: str, query: Query, plan: Plan, troubles: tuple[Failed, ...]
    ) -> RetrievalResult:
        result = with_troubles(await self._retrieve(run, query, plan), troubles)
        if self.cache is None or result.degraded:
            return result
        kept = await keep(run, self.cache, key, result)
        if isinstance(kept, Ok):
            return result
        raise_what_must_not_be_hidden((kept,), strict=self._config.strict)
        return with_troubles(result, (kept,))

    async def _retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        rewriting = await search_in_rounds(run, self._parts, query, plan, self._config)
        note = await why_nothing_passes(run, self._parts.store, plan.condition, rewriting.best.found)
        result = make_result(run, query, rewriting, plan, self._config, note=note)
        if self._parts.evaluator is None:
            return result
        return await evaluated(
            run, self._parts.evaluator, query.text, result, result.formatted_context, strict=self._config.strict
        )
