"""The retrieval pipeline: one store, and the components that each query passes through."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.cache.kept import KeptResults
from retrieval_core.pipeline.engine import Engine, Shares, Stages
from retrieval_core.pipeline.options import OF_SEVERAL, QueryOptions, query_options
from retrieval_core.pipeline.planning import Planner
from retrieval_core.pipeline.plugging import by_name, kept_reranks, questions_with, reranker_chain
from retrieval_core.pipeline.query_engine import QueryEngine
from retrieval_core.pipeline.results import Evaluate
from retrieval_core.pipeline.stages.candidates import Fuse, Search
from retrieval_core.pipeline.stages.embed import recover
from retrieval_core.pipeline.stages.format import Format
from retrieval_core.pipeline.stages.judge import Judge
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.pipeline.stages.prune import Prune
from retrieval_core.pipeline.stages.relevance import DropIrrelevant
from retrieval_core.pipeline.stages.rerank import Rerank, TopK
from retrieval_core.pipeline.stages.rewrite import Rewrite
from retrieval_core.pipeline.stages.search import Sources
from retrieval_core.pipeline.stages.select import Select
from retrieval_core.pipeline.stages.transform import Transform
from retrieval_core.pipeline.stages.unmatched import CheckFilter
from retrieval_core.ports.checks import check_components
from retrieval_core.run.caching import Lazy
from retrieval_core.run.twins import sync_twin, with_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.stages.state import Stage
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
    from retrieval_core.types import RetrievalResult


class RetrievalPipeline(QueryEngine):
    """Searches a store with components that you pass in; :func:`retrieval_core.open_index` builds one from settings.

    Each method has an asynchronous twin whose name begins with ``a``, such as :meth:`aretrieve`.

    Args:
        store: The store to search.
        embedder: Embeds queries. Default: none; only keyword search is possible.
        retrievers: Further retrievers by name. Each query uses them.
        transformers: Query transformers by name. A query uses those in its ``transforms``, or in ``transform.use``.
        condenser: Rewrites a follow-up question of a conversation as a complete question.
        reranker: Reranks the best hits. In a list, each reranker is the fallback of the ones before.
        relevance_filter: Drops irrelevant chunks.
        pruner: Shortens chunks to their relevant sentences.
        rewriter: Rewrites a query that found too little.
        evaluator: Scores each result.
        answer_writer: Writes answers. Default: answers consist of sentences of the documents.
        cache: Caches results, if the store reports a version that changes with each write.
        token_counter: Counts the tokens of contexts. Default: the counter of the embedder, or the local one.
        observer: Receives the events of each query.
        config: Defaults of each query.
        clock: Measures durations and deadlines. Default: the system's clock.
        owned: Other objects to close with the pipeline, such as a shared model.
        extra_stages: Your own stages. Each runs after the stage that it names in ``after``.

    Closing it closes the store and everything else that was passed to it.

    Raises:
        InvalidParameterError: The store has no ``search()``, or a component lacks a method.

    Example::

        from retrieval_core.adapters.stores.memory import MemoryStore

        with RetrievalPipeline(MemoryStore(), config=load_config("lexical")) as pipeline:
            print(pipeline.retrieve("how far away is the moon").hits)
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
        extra_stages: Sequence[Stage] = (),
    ) -> None:
        if not callable(getattr(store, "search", None)):  # a configuration has settings of that name
            msg = (
                f"a pipeline takes a store to search, got {type(store).__name__}; "
                "for everything that a configuration names use retrieval_core.open_index(config=config)"
            )
            raise InvalidParameterError(msg)
        check_components(embedder=embedder, reranker=reranker, token_counter=token_counter, observer=observer)
        super().__init__(config, observer, clock, threads="retrieval-plugins")
        now, config = self._clock.now, self.config
        questions = None if embedder is None else questions_with(embedder, config, now)
        rerankers = reranker_chain(reranker)
        shares = Shares.of(reranks=bool(rerankers), filters=relevance_filter is not None, rewrites=rewriter is not None)
        sources = Sources(store, questions, by_name(retrievers, "retriever", "search"))
        named = by_name(transformers, "transformer", "transform")
        finding = (
            Search(sources, config, shares.search - shares.transform),
            Fuse(config),
            Select(store, shares.select - shares.search),
        )
        improving: list[Stage] = []
        if rerankers:
            kept_scores = kept_reranks(config.cache, now)
            improving.append(Rerank(rerankers, config, kept_scores, shares.rerank - shares.select))
        improving.append(TopK())
        if relevance_filter is not None:
            before = shares.rerank if rerankers else shares.select
            improving.append(DropIrrelevant(relevance_filter, config, shares.relevance - before))
        finishing = (CheckFilter(store), Judge(store, embedder, config), Format(config))
        stages = Stages(
            once=(Transform(condenser, named, config, shares.transform),),
            each_round=(*finding, *improving),
            rewrite=() if rewriter is None else (Rewrite(rewriter, config),),
            at_last=(
                *(() if pruner is None else (Prune(pruner, config),)),
                *finishing,
                *(() if evaluator is None else (Evaluate(evaluator, config),)),
            ),
        ).plus(extra_stages)
        self._store = store
        self._embedder = embedder
        self._by_role = {
            "rerankers": rerankers,
            "relevance_filter": relevance_filter,
            "pruner": pruner,
            "rewriter": rewriter,
            "evaluator": evaluator,
        }
        counts = self._make_token_counter if token_counter is None else lambda: token_counter
        self._token_counter: Lazy[TokenCounter] = Lazy(counts)  # several loops may ask for it at once
        self._kept = KeptResults(cache, store, stages.all, questions=questions, config=config, now=now)
        planner = partial(Planner, config, store, has_embedder=embedder is not None)
        plan = planner(transformers=tuple(named), reranks=bool(rerankers))
        self._retrieval = self._engine = Engine(stages, plan, self._kept, strict=config.strict, sources=sources)
        self._by_meaning = None
        if questions is not None:
            search = Search(Sources(store, questions), config, shares.search)
            transform = Transform(None, {}, config, shares.transform)
            bare = Stages((transform,), (search, *finding[1:], TopK()), (), finishing)
            shared = KeptResults(None, store, bare.all, questions=questions, config=config, now=now)
            self._by_meaning = Engine(bare, planner(), shared, strict=config.strict)
        self._filters = relevance_filter is not None
        self._evaluator = evaluator
        self._questions = questions
        self._stores = {"": store}
        self._lazy_answer_writer = self._answering_with(answer_writer)
        self._owned = tuple(owned)

    @property
    def cache(self) -> ResultCache | None:
        """The cache of results; ``None`` if there is none."""
        return self._kept.cache

    @property
    def store(self) -> Store:
        """The store that is searched."""
        return self._store

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of queries; ``None`` if there is none."""
        return self._embedder

    @property
    def components(self) -> Mapping[str, object]:
        """The components by role; ``None`` for those that are not configured."""
        return {"embedder": self.embedder, "store": self.store, "cache": self.cache, **self._by_role}

    @property
    def token_counter(self) -> TokenCounter:
        """The token counter of contexts.

        Raises:
            ConfigurationError: None was passed, the embedder has none, and the local one is not installed.
        """
        return self._token_counter.get()

    def _make_token_counter(self) -> TokenCounter:
        from retrieval_core.adapters.token_counters import counter_of_embedder  # noqa: PLC0415 - of use to contexts alone

        return counter_of_embedder(self._embedder)

    async def arecover_from_embedding_failure(self) -> bool:
        """Reopen the embedder after a failure, and return whether it works.

        Queries do this automatically from time to time, and use keyword search until it works again.
        """
        return self.embedder is not None and await recover(self._run(), self.embedder)

    recover_from_embedding_failure = sync_twin(arecover_from_embedding_failure)

    @with_options(QueryOptions, without=OF_SEVERAL)
    async def acached_result(
        self,
        query: str,
        filters: Filters = None,
        **options: Unpack[QueryOptions],
    ) -> RetrievalResult | None:
        """Return the cached result for a query, or ``None`` without searching.

        The semantic cache also returns results of queries with the same meaning.

        Args:
            query: Text to search for, at most 10,000 characters (``query.max_length``); the rest is cut off.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            **options: Options of the query; see :class:`QueryOptions`.

        Returns:
            The result with ``from_cache`` set, or ``None``.

        Raises:
            QueryValidationError: The query is empty, or is not text.
            FilterError: The filter is invalid, or the store doesn't support one of its operators.
            InvalidParameterError: An argument is out of range, or the index doesn't support it.

        Example::

            async with open_index("notes.db") as index:
                print(await index.acached_result("how far away is the moon"))
        """
        given = query_options(options)
        plan = self._engine.plan(filters, given)
        return await self._engine.find_kept(self._run(), normalize(query, self.config.query), plan)

    async def ainvalidate(self) -> None:
        """Invalidate all cached results, for example after another program changed the documents.

        Not needed after writes through :class:`~retrieval_core.Index`, or if the store has a version.

        Raises:
            ServiceError: A shared cache can't be reached; this process no longer uses its results.
        """
        await self._kept.forget()

    invalidate = sync_twin(ainvalidate)

    def query_parts(self, *, with_embedder: bool) -> Iterable[object]:
        """Return the components that queries use.

        Args:
            with_embedder: Whether the embedder is included.
        """
        used = (self._store, *self._engine.plugins)
        return used if with_embedder else [plugin for plugin in used if plugin is not self._embedder]

    def _facts(self) -> Mapping[str, object]:
        parts = {"store": self.store, "embedder": self.embedder}
        return {name: None if part is None else type(part).__name__ for name, part in parts.items()}

    @property
    def _held(self) -> Sequence[object]:
        return (self.cache, self._lazy_answer_writer.made, *self._owned, *self._engine.plugins, self._store)
