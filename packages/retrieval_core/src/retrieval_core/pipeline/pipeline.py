"""The way of a question, and what the pipeline promises around it: one deadline, one run, one result."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from retrieval_core.cache.embeddings import EmbeddingCache
from retrieval_core.cache.key import result_key
from retrieval_core.config import RetrievalConfig
from retrieval_core.errors import InvalidParameterError, MalformedAnswerError
from retrieval_core.observe.several import SeveralObservers
from retrieval_core.pipeline.caching import ask_cache, keep
from retrieval_core.pipeline.fingerprint import fingerprint_of
from retrieval_core.pipeline.planning import make_plan
from retrieval_core.pipeline.results import make_result
from retrieval_core.pipeline.rounds import Parts, raise_what_must_not_be_hidden, search_in_rounds
from retrieval_core.ports import Versioned
from retrieval_core.run.breaker import CircuitBreakers
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.retry import RetryPolicy
from retrieval_core.run.runner import Failed, Guard, Ok, Run
from retrieval_core.run.single_flight import SingleFlight
from retrieval_core.run.sync import SyncBridge
from retrieval_core.run.threads import ThreadPool
from retrieval_core.stages.normalize import normalize
from retrieval_core.stages.unmatched import why_nothing_passes
from retrieval_core.types import Degradation, EvaluationScores, RetrievalResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from retrieval_core.filters import Filter, MetadataFilter
    from retrieval_core.observe import Observer
    from retrieval_core.ports import Compressor, Embedder, Evaluator, ResultCache, Rewriter, Store
    from retrieval_core.run.clock import Clock
    from retrieval_core.stages.plan import Plan
    from retrieval_core.types import Query, SearchMode

PATIENCE = 5.0
"""How many seconds closing waits for a synchronous plug-in."""


class RetrievalPipeline:
    """Turns a question into the few passages that answer it.

    Args:
        store: Where to search.
        embedder: Embeds the question; without one only lexical search is possible.
        compressor: Leaves out passages that do not bear on the question.
        rewriter: Puts a question that found too little into other words.
        evaluator: Scores each result.
        cache: Keeps results for the next time.
        observer: Is told what happens, as it happens.
        config: Defaults of every query.
        clock: Measures durations and the deadline; the system's where it is not given.
        owned: What else is closed with it: a model that several stages share.

    The pipeline owns what it was given: :meth:`close` closes the store, and whatever else can be closed.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None = None,
        *,
        compressor: Compressor | None = None,
        rewriter: Rewriter | None = None,
        evaluator: Evaluator | None = None,
        cache: ResultCache | None = None,
        observer: Observer | None = None,
        config: RetrievalConfig | None = None,
        clock: Clock | None = None,
        owned: Sequence[object] = (),
    ) -> None:
        self.config = config or RetrievalConfig()
        self.cache = cache
        self._clock = clock or SystemClock()
        # Whoever watches cannot harm: what an observer raises is kept from the query.
        observer = None if observer is None else SeveralObservers(observer)
        self._observer = observer
        settings = self.config
        embedded = None
        if settings.cache.enabled and settings.cache.embeddings:
            embedded = EmbeddingCache(settings.cache.embeddings, self._clock.now)
        self._parts = Parts(store, embedder, compressor, rewriter, evaluator, embedded)
        self._guard = Guard(
            RetryPolicy(**settings.retry.model_dump()),
            CircuitBreakers(failures=settings.breaker.failures, pause=settings.breaker.pause_seconds),
            observer,
        )
        self._pool = ThreadPool("retrieval-plugins", threads=4, patience=PATIENCE)
        self._flights: SingleFlight[RetrievalResult] = SingleFlight()
        self._epoch = 0
        self._owned = tuple(owned)
        self._versioned = store if isinstance(store, Versioned) else None
        self.sync = SyncBridge()

    @property
    def store(self) -> Store:
        """Where it searches."""
        return self._parts.store

    @property
    def embedder(self) -> Embedder | None:
        """What embeds the questions."""
        return self._parts.embedder

    def retrieve(
        self,
        query: str,
        filters: Filter | MetadataFilter | Mapping[str, Any] | None = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
    ) -> RetrievalResult:
        """Find the passages that answer a question; the same as :meth:`aretrieve`, from synchronous code.

        It may be called where an event loop is running, as in a notebook, and then blocks that loop's thread.
        """
        return self.sync.run(self.aretrieve(query, filters, top_k=top_k, mode=mode))

    async def aretrieve(
        self,
        query: str,
        filters: Filter | MetadataFilter | Mapping[str, Any] | None = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
    ) -> RetrievalResult:
        """Find the passages that answer a question.

        The same question asked by several callers at a time is answered once; asked again, it may come from the cache.

        Args:
            query: The question.
            filters: What every passage must pass, typed or as JSON.
            top_k: The most hits, 1 to 1000; from the configuration where it is not given.
            mode: By meaning, by words, or both; from the configuration where it is not given.

        Raises:
            QueryValidationError: The query is empty or no text.
            FilterError: The filter is not well formed, or the store lacks one of its operators.
            InvalidParameterError: ``top_k`` or ``mode`` is outside its range.
            EmbeddingError: The query could not be embedded, and the store cannot be searched by words.
            StoreError: The index cannot be used.
            ConfigurationError: Something needed is not installed or not set.
            RetrievalError: With ``strict``, whatever would otherwise be listed in ``result.degraded``; with
                ``raise_on_error``, what kept everything from being searched.
        """
        plan = make_plan(self._parts, self.config.search, filters, top_k, mode)
        normal = normalize(query, self.config.query)
        run = Run(self._pool, seconds=self.config.deadline_seconds, clock=self._clock, guard=self._guard)
        with nullcontext() if self._observer is None else self._observer.query():
            result = await self._answer(run, normal, plan)
            if self._observer is not None:
                self._observer.answered(result)
        return result

    async def _answer(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        key = await self._key(run, query, plan)
        if key is None:
            return await self._retrieve(run, query, plan)
        troubles: tuple[Failed, ...] = ()
        if self.cache is not None:
            cached = await ask_cache(run, self.cache, key)
            if isinstance(cached, Failed):
                raise_what_must_not_be_hidden((cached,), strict=self.config.strict)
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
        return fingerprint_of(self._parts, self.config)

    async def _retrieve_and_keep(
        self, run: Run, key: str, query: Query, plan: Plan, troubles: tuple[Failed, ...]
    ) -> RetrievalResult:
        result = _with_troubles(await self._retrieve(run, query, plan), troubles)
        if self.cache is None or result.degraded:
            return result
        kept = await keep(run, self.cache, key, result)
        if isinstance(kept, Ok):
            return result
        raise_what_must_not_be_hidden((kept,), strict=self.config.strict)
        return _with_troubles(result, (kept,))

    async def _retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        rewriting = await search_in_rounds(run, self._parts, query, plan, self.config)
        note = await why_nothing_passes(run, self._parts.store, plan.condition, rewriting.best.found)
        result = make_result(run, query, rewriting, plan, self.config, note=note)
        if self._parts.evaluator is None:
            return result
        return await self._evaluated(run, query.text, result, result.formatted_context)

    async def aevaluate(self, result: RetrievalResult, response: str) -> RetrievalResult:
        """Return a result with its scores for the response that was written with it.

        Raises:
            InvalidParameterError: The pipeline has no evaluator.
        """
        if self._parts.evaluator is None:
            msg = "there is no evaluator; configure evaluation.enabled = true"
            raise InvalidParameterError(msg)
        run = Run(self._pool, seconds=self.config.deadline_seconds, clock=self._clock, guard=self._guard)
        return await self._evaluated(run, str(result.metadata["query_normalized"]), result, response)

    def evaluate(self, result: RetrievalResult, response: str) -> RetrievalResult:
        """Return a result with its scores for a response; see :meth:`aevaluate`."""
        return self.sync.run(self.aevaluate(result, response))

    async def _evaluated(self, run: Run, query: str, result: RetrievalResult, response: str) -> RetrievalResult:
        evaluator = self._parts.evaluator
        assert evaluator is not None  # noqa: S101 - both callers looked
        outcome = await run.call("evaluate", evaluator.evaluate, query, result.documents, response)
        trace = (*result.trace, run.records[-1])
        if isinstance(outcome, Ok):
            if _are_scores(outcome.value):
                return replace(result, evaluation=outcome.value, trace=trace)
            problem = f"the evaluator's answer cannot be used: {outcome.value!r:.120}"
            outcome = Failed("evaluate", MalformedAnswerError(problem))
        raise_what_must_not_be_hidden((outcome,), strict=self.config.strict)
        return _with_troubles(replace(result, evaluation=EvaluationScores(), trace=trace), (outcome,))

    async def ainvalidate(self) -> None:
        """Forget every result that was kept, as after a change that the pipeline cannot see.

        Writes through :class:`~retrieval_core.Index`, and writes of any kind to a store that tells its version, need no
        such call.

        Raises:
            ServiceError: A shared cache cannot be reached; this process does not use its results any more.
        """
        self._epoch += 1
        if self.cache is not None:
            await self.cache.clear()

    def invalidate(self) -> None:
        """Forget every result that was kept; see :meth:`ainvalidate`."""
        self.sync.run(self.ainvalidate())

    async def aclose(self) -> None:
        """Close the store, and everything plugged in that can be closed. Closing twice is fine.

        A synchronous plug-in that has not returned after 5 s is left to itself, and named in a warning of the log.
        """
        parts = self._parts
        async with AsyncExitStack() as stack:  # whatever fails, the rest is closed too
            stack.push_async_callback(asyncio.to_thread, self._pool.close)
            models = (*self._owned, parts.evaluator, parts.rewriter, parts.compressor, self.embedder)
            for part in (self.cache, *models, self.store):
                if (close := getattr(part, "aclose", None)) is not None:
                    stack.push_async_callback(_close, close)

    def close(self) -> None:
        """Close everything, and stop the background loop of synchronous calls."""
        try:
            self.sync.run(self.aclose())
        finally:
            self.sync.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _are_scores(value: object) -> bool:
    """Whether an evaluator's answer is one: each score is known and between 0 and 1, or not known."""
    if not isinstance(value, EvaluationScores):
        return False
    return all(score is None or 0 <= score <= 1 for score in (value.context_precision, value.response_relevancy))


async def _close(close: Callable[[], object]) -> None:
    if inspect.isawaitable(closing := close()):
        await closing


def _with_troubles(result: RetrievalResult, troubles: tuple[Failed, ...]) -> RetrievalResult:
    if not troubles:
        return result
    return replace(result, degraded=result.degraded + tuple(Degradation(item.stage, item.reason) for item in troubles))
