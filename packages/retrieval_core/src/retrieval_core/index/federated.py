"""Several indexes, searched as one: federated search."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Unpack

from retrieval_core.pipeline.cache import KeptResults
from retrieval_core.pipeline.engine import Engine
from retrieval_core.pipeline.lifecycle import by_name, questions_with, reranker_chain
from retrieval_core.pipeline.options import QueryOptions, query_options
from retrieval_core.pipeline.query_engine import QueryEngine
from retrieval_core.pipeline.several import checked_weights, plan_several
from retrieval_core.pipeline.stage_list import Components, list_stages
from retrieval_core.ports import Evaluator
from retrieval_core.ports.plugin import as_optional
from retrieval_core.run.twins import sync_twin, with_options

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.options import Filters
    from retrieval_core.pipeline.stages.state import Stage
    from retrieval_core.ports import (
        Pruner,
        QueryTransformer,
        RelevanceFilter,
        Reranker,
        ResultCache,
        Rewriter,
        TokenCounter,
    )
    from retrieval_core.run.caching import Lazy
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Observer
    from retrieval_core.types import Hit


class FederatedIndex(QueryEngine):
    """Several indexes that are searched as one, opened by :func:`retrieval_core.open_indexes`.

    The indexes are searched in parallel, and their results are merged into one ranked list. Indexes with the same
    embedder have each query embedded once. Reranker, relevance filter, pruner, rewriter and evaluator run once, on the
    merged list. If an index fails, you get the results of the others, and ``degraded`` names it. Each method has an
    asynchronous twin whose name begins with ``a``, such as :meth:`aretrieve`.

    Args:
        indexes: Indexes by name; names contain no white space and no colon. Best without a separate reranker each.
        weights: Factors for the scores of each index, by name, at least 0; an index with 0 is not searched. Default:
            ``federation.weights``, 1 for each index.
        reranker: Reranks the best hits of all indexes. In a list, each reranker is the fallback of the ones before.
        relevance_filter: Drops irrelevant chunks.
        pruner: Shortens chunks to their relevant sentences.
        rewriter: Rewrites a query that found too little in all indexes.
        evaluator: Scores each result.
        answer_writer: Writes answers. Default: answers consist of sentences of the documents.
        transformers: Query transformers by name, which run once for all indexes in ``joined``.
        condenser: Rewrites a follow-up question as a complete question, for the indexes in ``joined``.
        joined: Names of the indexes that don't transform queries by themselves.
        cache: Caches results, if each store reports a version that changes with each write.
        observer: Receives the events of each query.
        config: Defaults of each query. The settings of each index apply inside that index.
        clock: Measures durations and deadlines. Default: the system's clock.
        owned: Other objects to close with the indexes.
        extra_stages: Your own stages. Each runs after the stage that it names in ``after``.

    Closing it closes the indexes and everything else that was passed to it.

    Raises:
        InvalidParameterError: There is no index, a name is invalid, or a weight is negative or belongs to no index.

    Example::

        with open_index("notes.db") as notes, open_index("faq.db") as faq:
            indexes = FederatedIndex({"notes": notes, "faq": faq}, weights={"faq": 0.5})
            print(indexes.retrieve("how far away is the moon").hits[0].source_index)
    """

    def __init__(
        self,
        indexes: Mapping[str, RetrievalPipeline],
        *,
        weights: Mapping[str, float] | None = None,
        reranker: Reranker | Sequence[Reranker] | None = None,
        relevance_filter: RelevanceFilter | None = None,
        pruner: Pruner | None = None,
        rewriter: Rewriter | None = None,
        evaluator: Evaluator | None = None,
        answer_writer: AnswerWriter | Lazy[AnswerWriter] | None = None,
        transformers: Mapping[str, QueryTransformer] | None = None,
        condenser: QueryTransformer | None = None,
        joined: Collection[str] = (),
        cache: ResultCache | None = None,
        observer: Observer | None = None,
        config: RetrievalConfig | None = None,
        clock: Clock | None = None,
        owned: Sequence[object] = (),
        extra_stages: Sequence[Stage] = (),
    ) -> None:
        super().__init__(config, observer, clock, threads="retrieval-federation")
        self.indexes = dict(indexes)
        given = self.config.federation.weights if weights is None else weights
        self._weights = checked_weights(self.indexes, given)
        self._searched = {
            name: pipeline.as_one_of_several(weight=self._weights[name], is_joined=name in joined)
            for name, pipeline in self.indexes.items()
        }
        self._stores = {name: index.store for name, index in self._searched.items()}
        embedders = {id(each): each for index in self._searched.values() if (each := index.embedder) is not None}
        self._questions = None
        if len(embedders) == 1:  # otherwise a query has several vectors
            self._questions = questions_with(next(iter(embedders.values())), self.config, self._clock.now)
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
        self._retrieval = self._engine = self._engine_of(components, cache)
        self._by_meaning = None
        if all(index.embedder is not None for index in self._searched.values()):
            self._by_meaning = self._engine_of(Components(condenser=condenser), None)
        self._filters = relevance_filter is not None
        self._evaluator = as_optional(evaluator, Evaluator)
        self._lazy_answer_writer = self._answering_with(answer_writer)
        self._owned = tuple(owned)

    def _engine_of(self, components: Components, cache: ResultCache | None) -> Engine:
        config, now = self.config, self._clock.now
        stages = list_stages(self._searched, components, config, now)
        plan = partial(
            plan_several,
            indexes=self._searched,
            transformers=tuple(components.transformers),
            config=config,
            reranks=bool(components.rerankers),
        )
        kept = KeptResults(cache, self._stores, stages, questions=self._questions, config=config, now=now)
        return Engine(stages, plan, kept, strict=config.strict)

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each index, by name."""
        return dict(self._weights)

    @with_options(QueryOptions, without=("indexes",))
    async def asearch_multiple_indexes(
        self,
        query: str,
        index_ids: Sequence[str],
        filters: Filters = None,
        **options: Unpack[QueryOptions],
    ) -> list[Hit]:
        """Search some of the indexes and return the best hits of all.

        Args:
            query: Text to search for, at most 10,000 characters (``query.max_length``); the rest is cut off.
            index_ids: Names of the indexes to search.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            **options: Options of the query; see :class:`QueryOptions`.

        Returns:
            The hits, best first, each with a ``source_index``.

        Raises:
            QueryValidationError: The query is empty, or is not text.
            FilterError: The filter is invalid, or the store doesn't support one of its operators.
            InvalidParameterError: An argument is out of range, or the index doesn't support it.
            EmbeddingError: The query could not be embedded, and the store has no keyword search.
            StoreError: The index can't be read. With several indexes: none can be read.
            ConfigurationError: A required package or setting is missing.
            RetrievalError: With ``strict``: any failure that is otherwise listed in ``degraded``. With
                ``raise_on_error``: nothing could be searched.

        Example::

            async with open_indexes(["notes.db", "faq.db"]) as indexes:
                for hit in await indexes.asearch_multiple_indexes("moon", ["notes"]):
                    print(hit.source_index, hit.chunk.source)
        """
        given = query_options(options, indexes=index_ids)
        return list((await self.aretrieve(query, filters, **given)).hits)

    search_multiple_indexes = sync_twin(asearch_multiple_indexes)

    @property
    def token_counter(self) -> TokenCounter:
        """The token counter of the first index.

        Raises:
            ConfigurationError: There is none.
        """
        return next(iter(self.indexes.values())).token_counter

    def query_parts(self, *, with_embedder: bool) -> Iterable[object]:
        """Return the components that queries use, of all indexes.

        Args:
            with_embedder: Whether the embedder is included.
        """
        own = (pipeline.query_parts(with_embedder=with_embedder) for pipeline in self.indexes.values())
        return (*self._engine.plugins, *chain.from_iterable(own))

    def _facts(self) -> Mapping[str, object]:
        return {"indexes": tuple(self.indexes), "weights": self.weights}

    @property
    def _held(self) -> Sequence[object]:
        return (self.cache, self._lazy_answer_writer.made, *self._owned, *self._engine.plugins, *self.indexes.values())
