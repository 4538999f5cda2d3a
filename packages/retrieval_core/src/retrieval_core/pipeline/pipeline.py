"""The retrieval pipeline: one store, and the components that each query passes through."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.cache import KeptResults
from retrieval_core.pipeline.engine import Engine
from retrieval_core.pipeline.lifecycle import by_name, questions_with, reranker_chain
from retrieval_core.pipeline.options import Planner, make_plan
from retrieval_core.pipeline.query_engine import QueryEngine
from retrieval_core.pipeline.several import SearchedIndex
from retrieval_core.pipeline.stage_list import Components, list_stages
from retrieval_core.pipeline.stages.embed import recover
from retrieval_core.pipeline.stages.search import Sources
from retrieval_core.ports import Embedder, Evaluator, TokenCounter, as_store
from retrieval_core.ports.plugin import as_optional, given_as
from retrieval_core.run.caching import Lazy
from retrieval_core.run.twins import sync_twin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.stages.state import Stage
    from retrieval_core.ports import (
        Pruner,
        QueryTransformer,
        RelevanceFilter,
        Reranker,
        ResultCache,
        Retriever,
        Rewriter,
        Store,
    )
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Observer


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
        token_counter: Callable[[str], int] | None = None,
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
        store = as_store(store)
        embedder, evaluator = as_optional(embedder, Embedder), as_optional(evaluator, Evaluator)
        counter = as_optional(token_counter, TokenCounter, "token_counter")
        super().__init__(config, observer, clock, threads="retrieval-plugins")
        now, config = self._clock.now, self.config
        questions = None if embedder is None else questions_with(embedder, config, now)
        components = Components(
            transformers=by_name(transformers, "transformer", "transform"),
            condenser=condenser,
            rerankers=reranker_chain(reranker),
            relevance_filter=relevance_filter,
            pruner=pruner,
            rewriter=rewriter,
            evaluator=evaluator,
            extra_stages=extra_stages,
        )
        self._store = store
        self._embedder = embedder
        self._components = components
        counts = self._make_token_counter if counter is None else lambda: counter
        self._token_counter: Lazy[TokenCounter] = Lazy(counts)  # several loops may ask for it at once
        sources = Sources(store, questions, by_name(retrievers, "retriever", "search"))
        self._retrieval = self._engine = self._engine_of(sources, components, cache)
        self._by_meaning = None
        if questions is not None:
            self._by_meaning = self._engine_of(Sources(store, questions), Components(), None)
        self._filters = relevance_filter is not None
        self._evaluator = evaluator
        self._questions = questions
        self._stores = {"": store}
        self._lazy_answer_writer = self._answering_with(answer_writer)
        self._owned = tuple(owned)

    def _engine_of(self, sources: Sources, components: Components, cache: ResultCache | None) -> Engine:
        config, now = self.config, self._clock.now
        stages = list_stages(sources, components, config, now)
        plan = partial(
            make_plan,
            config,
            store=sources.store,
            has_embedder=sources.questions is not None,
            transformers=tuple(components.transformers),
            reranks=bool(components.rerankers),
        )
        kept = KeptResults(cache, {"": sources.store}, stages, questions=sources.questions, config=config, now=now)
        return Engine(stages, Planner(sources.store, plan), kept, strict=config.strict, sources=sources)

    def as_one_of_several(self, *, weight: float, is_joined: bool) -> SearchedIndex:
        """Return what several indexes that are searched as one need of this one.

        Args:
            weight: The factor for its scores.
            is_joined: Whether its queries are transformed together with those of the others.
        """
        names = tuple(self._components.transformers)
        return SearchedIndex(self._store, self._embedder, self._retrieval, self._run, names, weight, is_joined)

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
        given = self._components
        return {
            "embedder": self.embedder,
            "store": self.store,
            "cache": self.cache,
            "rerankers": given.rerankers,
            "relevance_filter": given.relevance_filter,
            "pruner": given.pruner,
            "rewriter": given.rewriter,
            "evaluator": given.evaluator,
        }

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

    def query_parts(self, *, with_embedder: bool) -> Iterable[object]:
        """Return the components that queries use.

        Args:
            with_embedder: Whether the embedder is included.
        """
        used = (self._store, *self._engine.plugins)
        embedder = None if self._questions is None else self._questions.embedder
        return used if with_embedder else [plugin for plugin in used if plugin is not embedder]

    def _facts(self) -> Mapping[str, object]:
        parts = {"store": self.store, "embedder": self.embedder}
        return {name: None if part is None else type(given_as(part)).__name__ for name, part in parts.items()}

    @property
    def _held(self) -> Sequence[object]:
        return (self.cache, self._lazy_answer_writer.made, *self._owned, *self._engine.plugins, self._store)
