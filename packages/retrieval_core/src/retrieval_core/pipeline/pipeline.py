"""The way of a question, and what the pipeline promises around it: one deadline, one run, one result."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.cache.embeddings import EmbeddingCache
from retrieval_core.cache.reranks import RerankCache
from retrieval_core.config import RetrievalConfig
from retrieval_core.errors import InvalidParameterError
from retrieval_core.observe.several import SeveralObservers
from retrieval_core.pipeline.answering import Answering
from retrieval_core.pipeline.context import check_citations, make_context, with_budget
from retrieval_core.pipeline.evaluating import evaluated
from retrieval_core.pipeline.planning import make_plan
from retrieval_core.pipeline.rounds import Parts
from retrieval_core.run.breaker import CircuitBreakers
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.retry import RetryPolicy
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.sync import SyncBridge
from retrieval_core.run.threads import ThreadPool
from retrieval_core.stages.normalize import normalize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from retrieval_core.filters import Filter, MetadataFilter
    from retrieval_core.observe import Observer
    from retrieval_core.ports import (
        Compressor,
        Embedder,
        Evaluator,
        Reranker,
        ResultCache,
        Rewriter,
        Store,
        TokenCounter,
    )
    from retrieval_core.run.clock import Clock
    from retrieval_core.stages.plan import Plan
    from retrieval_core.types import Citation, CitationCheck, ContextPack, Query, RetrievalResult, SearchMode

PATIENCE = 5.0
"""How many seconds closing waits for a synchronous plug-in."""


class RetrievalPipeline:
    """Turns a question into the few passages that answer it.

    Args:
        store: Where to search.
        embedder: Embeds the question; without one only lexical search is possible.
        reranker: Puts the best hits into a better order; of several, each one stands in for those before it.
        compressor: Leaves out passages that do not bear on the question.
        rewriter: Puts a question that found too little into other words.
        evaluator: Scores each result.
        cache: Keeps results for the next time.
        token_counter: Measures contexts; where it is not given, the embedder counts, or the local one does.
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
        reranker: Reranker | Sequence[Reranker] | None = None,
        compressor: Compressor | None = None,
        rewriter: Rewriter | None = None,
        evaluator: Evaluator | None = None,
        cache: ResultCache | None = None,
        token_counter: TokenCounter | None = None,
        observer: Observer | None = None,
        config: RetrievalConfig | None = None,
        clock: Clock | None = None,
        owned: Sequence[object] = (),
    ) -> None:
        self.config = config or RetrievalConfig()
        self._clock = clock or SystemClock()
        # Whoever watches cannot harm: what an observer raises is kept from the query.
        observer = None if observer is None else SeveralObservers(observer)
        self._observer = observer
        settings = self.config
        embedded = reranked = None
        if settings.cache.enabled and settings.cache.embeddings:
            embedded = EmbeddingCache(settings.cache.embeddings, self._clock.now)
        if settings.cache.enabled and settings.cache.reranks:
            reranked = RerankCache(settings.cache.reranks, self._clock.now, settings.cache.ttl_seconds)
        self._parts = Parts(store, embedder, _chain(reranker), compressor, rewriter, evaluator, embedded, reranked)
        self._token_counter = token_counter
        self._guard = Guard(
            RetryPolicy(**settings.retry.model_dump()),
            CircuitBreakers(failures=settings.breaker.failures, pause=settings.breaker.pause_seconds),
            observer,
        )
        self._pool = ThreadPool("retrieval-plugins", threads=4, patience=PATIENCE)
        self._answering = Answering(self._parts, self.config, cache)
        self._owned = tuple(owned)
        self.sync = SyncBridge()

    @property
    def cache(self) -> ResultCache | None:
        """What keeps its results."""
        return self._answering.cache

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
        plan = make_plan(self._parts, self.config, filters, top_k, mode)
        normal = normalize(query, self.config.query)
        with nullcontext() if self._observer is None else self._observer.query():
            return await self._answer_and_tell(self._run(), normal, plan)

    def context(
        self,
        query: str,
        filters: Filter | MetadataFilter | Mapping[str, Any] | None = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
        max_tokens: int | None = None,
    ) -> ContextPack:
        """Return what a language model should be shown to answer a question; see :meth:`acontext`."""
        return self.sync.run(self.acontext(query, filters, top_k=top_k, mode=mode, max_tokens=max_tokens))

    async def acontext(
        self,
        query: str,
        filters: Filter | MetadataFilter | Mapping[str, Any] | None = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
        max_tokens: int | None = None,
    ) -> ContextPack:
        """Return what a language model should be shown to answer a question: passages, complete and within a budget.

        The hits of :meth:`aretrieve` come first, each followed by its parent, then their neighbours, as the section
        ``context`` of the configuration says. Every passage has a citation that can be checked, and the ledger says of
        everything that was considered what became of it. The store is asked once for all surroundings.

        Args:
            query: The question.
            filters: What every passage must pass, neighbours too.
            top_k: The most hits, 1 to 1000; from the configuration where it is not given.
            mode: By meaning, by words, or both; from the configuration where it is not given.
            max_tokens: The budget, at least 1; from the configuration where it is not given.

        Raises:
            ConfigurationError: Nothing is there that counts tokens.
            RetrievalError: As :meth:`aretrieve`.
        """
        settings = with_budget(self.config.context, max_tokens)
        plan = make_plan(self._parts, self.config, filters, top_k, mode)
        primaries = plan.top_k
        if self._parts.compressor is None:  # so that the ledger and the trace name what was reranked in vain
            plan = replace(plan, top_k=plan.shortlist)
        normal = normalize(query, self.config.query)
        run = self._run()
        with nullcontext() if self._observer is None else self._observer.query():
            result = await self._answer_and_tell(run, normal, plan)
            return await make_context(
                run,
                result,
                settings,
                self.token_counter,
                primaries=primaries,
                store=self._parts.store,
                condition=plan.condition,
                strict=self.config.strict,
            )

    @cached_property
    def token_counter(self) -> TokenCounter:
        """What measures contexts.

        Raises:
            ConfigurationError: None was given, and neither the embedder nor the local one counts.
        """
        if self._token_counter is not None:
            return self._token_counter
        from retrieval_core.token_counters import counter_of_embedder  # noqa: PLC0415 - of use to contexts alone

        return counter_of_embedder(self._parts.embedder)

    async def averify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with what the index says now, in one read.

        Raises:
            RetrievalError: The index cannot be read, or not in time.
        """
        return await check_citations(self._run(), self._parts.store, citations)

    def verify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with what the index says now; see :meth:`averify`."""
        return self.sync.run(self.averify(citations))

    def _run(self) -> Run:
        return Run(self._pool, seconds=self.config.deadline_seconds, clock=self._clock, guard=self._guard)

    async def _answer_and_tell(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        result = await self._answering.answer(run, query, plan)
        if self._observer is not None:
            self._observer.answered(result)
        return result

    async def aevaluate(self, result: RetrievalResult, response: str) -> RetrievalResult:
        """Return a result with its scores for the response that was written with it.

        Raises:
            InvalidParameterError: The pipeline has no evaluator.
        """
        if self._parts.evaluator is None:
            msg = "there is no evaluator; configure evaluation.enabled = true"
            raise InvalidParameterError(msg)
        query = str(result.metadata["query_normalized"])
        return await evaluated(self._run(), self._parts.evaluator, query, result, response, strict=self.config.strict)

    def evaluate(self, result: RetrievalResult, response: str) -> RetrievalResult:
        """Return a result with its scores for a response; see :meth:`aevaluate`."""
        return self.sync.run(self.aevaluate(result, response))

    async def ainvalidate(self) -> None:
        """Forget every result that was kept, as after a change that the pipeline cannot see.

        Writes through :class:`~retrieval_core.Index`, and writes of any kind to a store that tells its version, need no
        such call.

        Raises:
            ServiceError: A shared cache cannot be reached; this process does not use its results any more.
        """
        await self._answering.forget()

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
            models = (*self._owned, parts.evaluator, parts.rewriter, parts.compressor, *parts.rerankers, self.embedder)
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


def _chain(reranker: Reranker | Sequence[Reranker] | None) -> tuple[Reranker, ...]:
    if reranker is None:
        return ()
    chain = tuple(reranker) if isinstance(reranker, Sequence) and not isinstance(reranker, str) else (reranker,)
    for link in cast("tuple[Any, ...]", chain):
        size = getattr(link, "batch_size", None)
        if not (callable(getattr(link, "score", None)) and isinstance(getattr(link, "id", None), str)):
            msg = f"{link!r:.80} is no reranker: it needs an id (text), a batch_size and a method score"
            raise InvalidParameterError(msg)
        if type(size) is not int or size < 1:
            msg = f"the batch_size of the reranker {link.id} must be a whole number of at least 1, got {size!r:.40}"
            raise InvalidParameterError(msg)
    return cast("tuple[Reranker, ...]", chain)


async def _close(close: Callable[[], object]) -> None:
    if inspect.isawaitable(closing := close()):
        await closing
