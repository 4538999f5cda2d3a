"""Several indexes, searched as one: federated search."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Unpack

from retrieval_core.pipeline.engine import Engine, Shares, Stages
from retrieval_core.pipeline.federation.options import checked_weights, make_federated_plan
from retrieval_core.pipeline.federation.retrieval import Merge, SearchIndexes
from retrieval_core.pipeline.federation.together import Together, TransformTogether
from retrieval_core.pipeline.options import QueryOptions, query_options
from retrieval_core.pipeline.plugging import kept_reranks, reranker_chain
from retrieval_core.pipeline.query_engine import QueryEngine
from retrieval_core.pipeline.results import Evaluate
from retrieval_core.pipeline.stages.format import Format
from retrieval_core.pipeline.stages.prune import Prune
from retrieval_core.pipeline.stages.relevance import DropIrrelevant
from retrieval_core.pipeline.stages.rerank import Rerank, TopK
from retrieval_core.pipeline.stages.rewrite import Rewrite
from retrieval_core.run.twins import sync_twin, with_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.stages.state import Stage
    from retrieval_core.ports import Evaluator, Pruner, RelevanceFilter, Reranker, Rewriter, TokenCounter
    from retrieval_core.run.caching import Lazy
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Observer
    from retrieval_core.types import Hit


class FederatedIndex(QueryEngine):
    """Several indexes that are searched as one, opened by :func:`retrieval_core.open_indexes`.

    The indexes are searched in parallel, and their results are merged into one ranked list. Reranker, relevance filter,
    rewriter and evaluator run once, on the merged list. If an index fails, you get the results of the others, and
    ``degraded`` names it. Each method has an asynchronous twin whose name begins with ``a``, such as :meth:`aretrieve`.

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
        together: Query components that the indexes share; set by :func:`retrieval_core.open_indexes`.
        observer: Receives the events of each query.
        config: Defaults of each query. The settings of each index apply inside that index.
        clock: Measures durations and deadlines. Default: the system's clock.
        owned: Other objects to close with the indexes.

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
        together: Together | None = None,
        observer: Observer | None = None,
        config: RetrievalConfig | None = None,
        clock: Clock | None = None,
        owned: Sequence[object] = (),
    ) -> None:
        super().__init__(config, observer, clock, threads="retrieval-federation")
        self.indexes = dict(indexes)
        given = self.config.federation.weights if weights is None else weights
        self._weights = checked_weights(self.indexes, given)
        together = together or Together()
        rerankers = reranker_chain(reranker)
        shares = Shares.of(reranks=bool(rerankers), filters=relevance_filter is not None, rewrites=rewriter is not None)
        improving: list[Stage] = []
        if rerankers:
            kept_scores = kept_reranks(self.config.cache, self._clock.now)
            improving.append(Rerank(rerankers, self.config, kept_scores, shares.rerank - shares.indexes))
        improving.append(TopK())
        if relevance_filter is not None:
            before = shares.rerank if rerankers else shares.indexes
            improving.append(DropIrrelevant(relevance_filter, self.config, shares.relevance - before))
        finishing: list[Stage] = [Format(self.config)]
        if pruner is not None:
            finishing.insert(0, Prune(pruner, self.config))
        if evaluator is not None:
            finishing.append(Evaluate(evaluator, self.config))
        rewriting = () if rewriter is None else (Rewrite(rewriter, self.config),)
        self._retrieval = self._engine = self._searching(shares, together, improving, rewriting, finishing)
        self._by_meaning = None
        if all(pipeline.embedder is not None for pipeline in self.indexes.values()):
            self._by_meaning = self._searching(Shares.of(), together, [TopK()], (), [Format(self.config)])
        self._filters = relevance_filter is not None
        self._evaluator = evaluator
        self._questions = together.questions
        self._stores = {name: pipeline.store for name, pipeline in self.indexes.items()}
        self._lazy_answer_writer = self._answering_with(answer_writer)
        self._owned = tuple(owned)

    def _searching(
        self,
        shares: Shares,
        together: Together,
        improving: Sequence[Stage],
        rewriting: tuple[Stage, ...],
        finishing: Sequence[Stage],
    ) -> Engine:
        config, reranks = self.config, any(stage.name == Rerank.name for stage in improving)
        transform = TransformTogether(together, config, shares.transform * shares.indexes)
        search = SearchIndexes(self.indexes, shares.indexes - transform.deadline_share)
        merge = Merge(self.indexes, self._weights, config, reranks=reranks)
        stages = Stages((transform,), (search, merge, *improving), rewriting, tuple(finishing))
        reranked = config.reranker.candidates if reranks else 0
        plan = partial(make_federated_plan, weights=self._weights, config=config, reranked=reranked)
        return Engine(stages, plan, None, strict=config.strict)

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
        return (self._lazy_answer_writer.made, *self._owned, *self._engine.plugins, *self.indexes.values())
