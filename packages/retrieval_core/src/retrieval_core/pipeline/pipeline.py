"""The way of a question, and what the pipeline promises around it: one deadline, one run, one result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.answer.asking import Answers
from retrieval_core.pipeline.answer.evidence import EvidenceFinder
from retrieval_core.pipeline.cache.cached_retrieval import CachedRetrieval
from retrieval_core.pipeline.context import check_citations
from retrieval_core.pipeline.evaluating import evaluated
from retrieval_core.pipeline.planning import make_plan
from retrieval_core.pipeline.plugging import by_name, kept_reranks, questions_with, reranker_chain
from retrieval_core.pipeline.search_loop import Parts
from retrieval_core.pipeline.stages.embed import recover
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.pipeline.stages.search import Sources
from retrieval_core.run.lazy import Lazy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.answer.asked import Search
    from retrieval_core.pipeline.many import QueryOutcome
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.ports import (
        Embedder,
        Evaluator,
        Pruner,
        QueryTransformer,
        RelevanceFilter,
        Reranker,
        ResultCache,
        Retriever,
        Rewriter,
        Store,
        TokenCounter,
    )
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Observer
    from retrieval_core.types import Citation, CitationCheck, ContextPack, Query, RetrievalResult
    from retrieval_core.types.filters import Filter, MetadataFilter

    Filters = Filter | MetadataFilter | Mapping[str, Any] | None


class RetrievalPipeline(Answers):
    """Turns a question into the few passages that answer it.

    Args:
        store: Where to search.
        embedder: Embeds the question; without one only lexical search is possible.
        retrievers: Further ways of finding passages, by name; each is asked about every question.
        transformers: Look at the question before it is searched for, by name; a query uses those that it names, or
            those of ``transform.use`` in the configuration.
        condenser: Makes a question stand alone that belongs to a conversation.
        reranker: Puts the best hits into a better order; of several, each one stands in for those before it.
        relevance_filter: Leaves out passages that do not bear on the question.
        pruner: Shows of each passage only the sentences that bear on the question.
        rewriter: Puts a question that found too little into other words.
        evaluator: Scores each result.
        answer_writer: Answers questions; without one, in the passages' own words.
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
        retrievers: Mapping[str, Retriever] | None = None,
        transformers: Mapping[str, QueryTransformer] | None = None,
        condenser: QueryTransformer | None = None,
        reranker: Reranker | Sequence[Reranker] | None = None,
        relevance_filter: RelevanceFilter | None = None,
        pruner: Pruner | None = None,
        rewriter: Rewriter | None = None,
        evaluator: Evaluator | None = None,
        answer_writer: AnswerWriter | Lazy[AnswerWriter] | None = None,
        cache: ResultCache | None = None,
        token_counter: TokenCounter | None = None,
        observer: Observer | None = None,
        config: RetrievalConfig | None = None,
        clock: Clock | None = None,
        owned: Sequence[object] = (),
    ) -> None:
        if not callable(getattr(store, "search", None)):  # a configuration has settings of that name
            msg = (
                f"a pipeline takes a store to search, got {type(store).__name__}; "
                "for everything that a configuration names use retrieval_core.open_index(config=config)"
            )
            raise InvalidParameterError(msg)
        super().__init__(config, observer, clock, threads="retrieval-plugins")
        now = self._clock.now
        questions = None if embedder is None else questions_with(embedder, self.config, now)
        self._parts = Parts(
            Sources(store, questions, by_name(retrievers, "retriever", "search")),
            condenser,
            by_name(transformers, "transformer", "transform"),
            reranker_chain(reranker),
            relevance_filter,
            pruner,
            rewriter,
            evaluator,
            kept_reranks(self.config.cache, now),
        )
        counts = self._make_token_counter if token_counter is None else lambda: token_counter
        self._token_counter: Lazy[TokenCounter] = Lazy(counts)  # several loops may ask for it at once
        self._cached = CachedRetrieval(self._parts, self.config, cache, self._clock)
        self._lazy_answer_writer = self._answering_with(answer_writer)
        self._evidence = EvidenceFinder(self._parts, self.config, self._cached.retrieve, lambda: self.token_counter)
        self._owned = tuple(owned)

    @property
    def cache(self) -> ResultCache | None:
        """What keeps its results."""
        return self._cached.cache

    @property
    def store(self) -> Store:
        """Where it searches."""
        return self._parts.store

    @property
    def embedder(self) -> Embedder | None:
        """What embeds the questions."""
        return self._parts.embedder

    @property
    def components(self) -> Mapping[str, object]:
        """What it is made of, by role; ``None`` for what there is not."""
        parts = self._parts
        return {
            "embedder": self.embedder,
            "store": self.store,
            "cache": self.cache,
            "rerankers": parts.rerankers,
            "relevance_filter": parts.relevance_filter,
            "pruner": parts.pruner,
            "rewriter": parts.rewriter,
            "evaluator": parts.evaluator,
        }

    def retrieve(self, query: str, filters: Filters = None, **options: Unpack[QueryOptions]) -> RetrievalResult:
        """Find the passages that answer a question; the same as :meth:`aretrieve`, from synchronous code.

        It may be called where an event loop is running, as in a notebook, and then blocks that loop's thread.
        """
        return self.sync.run(self.aretrieve(query, filters, **options))

    async def aretrieve(self, query: str, filters: Filters = None, **options: Unpack[QueryOptions]) -> RetrievalResult:
        """Find the passages that answer a question.

        The same question asked by several callers at a time is answered once; asked again, it may come from the cache.

        Args:
            query: The question.
            filters: What every passage must pass, typed or as JSON.
            options: See :class:`~retrieval_core.pipeline.options.QueryOptions`.

        Raises:
            QueryValidationError: The query is empty or no text.
            FilterError: The filter is not well formed, or the store lacks one of its operators.
            InvalidParameterError: An option is outside its range.
            EmbeddingError: The query could not be embedded, and the store cannot be searched by words.
            StoreError: The index cannot be used.
            ConfigurationError: Something needed is not installed or not set.
            RetrievalError: With ``strict``, whatever would otherwise be listed in ``result.degraded``; with
                ``raise_on_error``, what kept everything from being searched.
        """
        plan = make_plan(self._parts, self.config, filters, options)
        return await self._answer(normalize(query, self.config.query), plan)

    def context(
        self, query: str, filters: Filters = None, *, max_tokens: int | None = None, **options: Unpack[QueryOptions]
    ) -> ContextPack:
        """Return what a language model should be shown to answer a question; see :meth:`acontext`."""
        return self.sync.run(self.acontext(query, filters, max_tokens=max_tokens, **options))

    async def acontext(
        self, query: str, filters: Filters = None, *, max_tokens: int | None = None, **options: Unpack[QueryOptions]
    ) -> ContextPack:
        """Return what a language model should be shown to answer a question: passages, complete and within a budget.

        The hits of :meth:`aretrieve` come first, each followed by its parent, then their neighbours, as the section
        ``context`` of the configuration says. Every passage has a citation that can be checked, and the ledger says of
        everything that was considered what became of it. The store is asked once for all surroundings.

        Args:
            query: The question.
            filters: What every passage must pass, neighbours too.
            max_tokens: The budget, at least 1; from the configuration where it is not given.
            options: See :class:`~retrieval_core.pipeline.options.QueryOptions`.

        Raises:
            ConfigurationError: Nothing is there that counts tokens.
            RetrievalError: As :meth:`aretrieve`.
        """
        find = self._evidence.full(query, filters, max_tokens, options)
        with self._watched():
            evidence = await find(self._run())
            self._told(evidence.result)
            return evidence.pack

    def _searches(
        self, query: str, filters: Filters, max_tokens: int | None, options: QueryOptions
    ) -> tuple[Search, ...]:
        return self._evidence.searches(query, filters, max_tokens, options)

    @property
    def _embedder_id(self) -> str | None:
        return None if self.embedder is None else self.embedder.id

    @property
    def token_counter(self) -> TokenCounter:
        """What measures contexts.

        Raises:
            ConfigurationError: None was given, and neither the embedder nor the local one counts.
        """
        return self._token_counter.get()

    def _make_token_counter(self) -> TokenCounter:
        from retrieval_core.adapters.token_counters import counter_of_embedder  # noqa: PLC0415 - of use to contexts alone

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

    async def aretrieve_many(
        self, queries: Sequence[str], filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> tuple[QueryOutcome, ...]:
        """Answer several questions: embedded together, searched side by side, each for itself.

        Args:
            queries: The questions.
            filters: What every passage must pass.
            options: See :class:`~retrieval_core.pipeline.options.QueryOptions`; they hold for all questions.

        Returns:
            One outcome for each question, in their order. A question that fails does not touch the others.

        Raises:
            FilterError: The filter is not well formed.
            InvalidParameterError: An option is outside its range.
        """
        from retrieval_core.pipeline.many import answer_many  # noqa: PLC0415 - most programs ask one at a time

        plan = make_plan(self._parts, self.config, filters, options)
        return await answer_many(
            self._run,
            self._parts.sources.questions,
            lambda query: self._answer(query, plan),
            queries,
            plan=plan,
            config=self.config,
        )

    def retrieve_many(
        self, queries: Sequence[str], filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> tuple[QueryOutcome, ...]:
        """Answer several questions; see :meth:`aretrieve_many`."""
        return self.sync.run(self.aretrieve_many(queries, filters, **options))

    process_query_batch = retrieve_many
    """The specification's name."""

    async def arecover_from_embedding_failure(self) -> bool:
        """Open the embedder anew and try it, and return whether it works.

        Questions do this by themselves, once for a while; until it works again they are searched for by words.
        """
        return self.embedder is not None and await recover(self._run(), self.embedder)

    def recover_from_embedding_failure(self) -> bool:
        """Open the embedder anew and try it; see :meth:`arecover_from_embedding_failure`."""
        return self.sync.run(self.arecover_from_embedding_failure())

    async def _answer(self, query: Query, plan: Plan) -> RetrievalResult:
        with self._watched():
            result = await self._cached.retrieve(self._run(), query, plan)
            self._told(result)
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

    async def acached_result(
        self, query: str, filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> RetrievalResult | None:
        """Return what is kept for a question, or for one that asks the same; ``None`` without searching.

        Raises:
            RetrievalError: As :meth:`aretrieve`, where something is asked wrongly.
        """
        plan = make_plan(self._parts, self.config, filters, options)
        return await self._cached.kept(self._run(), normalize(query, self.config.query), plan)

    async def ainvalidate(self) -> None:
        """Forget every result that was kept, as after a change that the pipeline cannot see.

        Writes through :class:`~retrieval_core.Index`, and writes of any kind to a store that tells its version, need no
        such call.

        Raises:
            ServiceError: A shared cache cannot be reached; this process does not use its results any more.
        """
        await self._cached.forget()

    def invalidate(self) -> None:
        """Forget every result that was kept; see :meth:`ainvalidate`."""
        self.sync.run(self.ainvalidate())

    @property
    def _held(self) -> Sequence[object]:
        parts = self._parts
        first = (self.cache, self._lazy_answer_writer.made, *self._owned)
        return (*first, *parts.transformers.values(), *parts.plugged_in, self.store)
