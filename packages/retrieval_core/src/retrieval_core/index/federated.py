"""Several indexes, searched as one: federated search."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from retrieval_core.pipeline.federation.options import checked_weights
from retrieval_core.pipeline.federation.retrieval import FederatedRetrieval
from retrieval_core.pipeline.federation.together import Together
from retrieval_core.pipeline.options import query_options
from retrieval_core.pipeline.plugging import kept_reranks, reranker_chain
from retrieval_core.pipeline.query_engine import QueryEngine
from retrieval_core.pipeline.search_loop import Stages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.query_engine import History
    from retrieval_core.ports import Evaluator, Pruner, RelevanceFilter, Reranker, Rewriter, TokenCounter, Variant
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.lazy import Lazy
    from retrieval_core.run.observe import Observer
    from retrieval_core.types import Hit, SearchMode


class FederatedIndex(QueryEngine):
    """Several indexes that are searched as one; made by :func:`open_indexes`, or from indexes of any kind.

    Each index is asked side by side, as it is configured. What they found becomes one order, see
    :mod:`retrieval_core.pipeline.stages.merge`; reranker, relevance filter, rewriter and evaluator work on that, once.
    An index that does not answer is listed in ``degraded``, and its failure leaves the others' hits alone.

    Every method exists twice: as it is, and with an ``a`` before its name as a coroutine function.

    Args:
        indexes: By name; a name has no white space and no colon. They are best made without a reranker of their own.
        weights: What the scores of an index's passages are multiplied by; 1 where it is not given, and an index with 0
            is not asked. Those of ``federation.weights`` in the configuration where none are given.
        reranker: Puts the best hits of all indexes into a better order; of several, each one stands in for those
            before it.
        relevance_filter: Leaves out passages that do not bear on the question.
        pruner: Shows of each passage only the sentences that bear on the question.
        rewriter: Puts a question that found too little in all indexes into other words.
        evaluator: Scores each result.
        answer_writer: Answers questions; without one, in the passages' own words.
        together: What looks at a question once for indexes that share it; :func:`open_indexes` gives it.
        observer: Is told what happens, as it happens.
        config: Defaults of every query; each index keeps its own for what it does itself.
        clock: Measures durations and the deadline; the system's where it is not given.
        owned: What else is closed with it.

    It owns what it was given: :meth:`close` closes the indexes, and whatever else can be closed.

    Raises:
        InvalidParameterError: There is no index, a name cannot be used, or a weight is negative or of no index.
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
        self._stages = Stages(
            rerankers=reranker_chain(reranker),
            relevance_filter=relevance_filter,
            pruner=pruner,
            rewriter=rewriter,
            evaluator=evaluator,
            reranked=kept_reranks(self.config.cache, self._clock.now),
        )
        together = together or Together()
        self._weights = checked_weights(self.indexes, given)
        self._retrieval = FederatedRetrieval(self.indexes, self._weights, self._stages, together, self.config)
        self._by_meaning = None
        if all(pipeline.embedder is not None for pipeline in self.indexes.values()):
            self._by_meaning = replace(self._retrieval, stages=Stages())
        self._questions = together.questions
        self._stores = {name: pipeline.store for name, pipeline in self.indexes.items()}
        self._lazy_answer_writer = self._answering_with(answer_writer)
        self._owned = tuple(owned)

    @property
    def weights(self) -> Mapping[str, float]:
        """Each index's weight, by its name."""
        return dict(self._weights)

    def search_multiple_indexes(
        self,
        query: str,
        index_ids: Sequence[str],
        filters: Filters = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
        score_threshold: float | None = None,
        transforms: Sequence[str] | None = None,
        variants: Sequence[Variant] | None = None,
        history: History | None = None,
        session_id: str | None = None,
        use_cache: bool | None = None,
        max_results_per_query: int | None = None,
    ) -> list[Hit]:
        """Search some of the indexes and return the best hits of all.

        Args:
            query: Text to search for, at most 10,000 characters (``query.max_length``); the rest is cut off.
            index_ids: Names of the indexes to search.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            top_k: Maximum number of results, 1 to 1000. Default: ``search.top_k``, 10.
            mode: ``"hybrid"``, ``"dense"`` (vector search only) or ``"lexical"`` (keyword search only). Default:
                ``search.mode``, hybrid.
            score_threshold: Minimum cosine similarity of query and chunk, 0 to 1. Default: ``search.score_threshold``,
                no minimum.
            transforms: Names of the query transformers to apply, such as ``["keywords"]``; ``[]`` applies none.
                Default: ``transform.use``, none.
            variants: Up to 16 more texts to search for, for example from your own query expansion, each a
                :class:`~retrieval_core.ports.Variant`. Default: none.
            history: Earlier turns of the conversation, oldest first, such as ``{"role": "user", "content": "Hi"}``. The
                last 100 turns are used, 10,000 characters of each. Default: none.
            session_id: ID of the user's session, for a semantic cache per session. Default: none.
            use_cache: Whether to return and store cached results. Default: ``True``.
            max_results_per_query: Maximum number of results from each index, 1 to 1000, if several are open. Default:
                ``federation.max_results_per_query``, 100.

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

            with open_indexes(["notes.db", "faq.db"]) as indexes:
                for hit in indexes.search_multiple_indexes("moon", ["notes"]):
                    print(hit.source_index, hit.chunk.source)
        """
        options = query_options(
            indexes=index_ids,
            top_k=top_k,
            mode=mode,
            score_threshold=score_threshold,
            transforms=transforms,
            variants=variants,
            history=history,
            session_id=session_id,
            use_cache=use_cache,
            max_results_per_query=max_results_per_query,
        )
        return list(self.sync.run(self._search(query, filters, options)).hits)

    async def asearch_multiple_indexes(
        self,
        query: str,
        index_ids: Sequence[str],
        filters: Filters = None,
        *,
        top_k: int | None = None,
        mode: SearchMode | None = None,
        score_threshold: float | None = None,
        transforms: Sequence[str] | None = None,
        variants: Sequence[Variant] | None = None,
        history: History | None = None,
        session_id: str | None = None,
        use_cache: bool | None = None,
        max_results_per_query: int | None = None,
    ) -> list[Hit]:
        """Search some of the indexes and return the best hits of all.

        Args:
            query: Text to search for, at most 10,000 characters (``query.max_length``); the rest is cut off.
            index_ids: Names of the indexes to search.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            top_k: Maximum number of results, 1 to 1000. Default: ``search.top_k``, 10.
            mode: ``"hybrid"``, ``"dense"`` (vector search only) or ``"lexical"`` (keyword search only). Default:
                ``search.mode``, hybrid.
            score_threshold: Minimum cosine similarity of query and chunk, 0 to 1. Default: ``search.score_threshold``,
                no minimum.
            transforms: Names of the query transformers to apply, such as ``["keywords"]``; ``[]`` applies none.
                Default: ``transform.use``, none.
            variants: Up to 16 more texts to search for, for example from your own query expansion, each a
                :class:`~retrieval_core.ports.Variant`. Default: none.
            history: Earlier turns of the conversation, oldest first, such as ``{"role": "user", "content": "Hi"}``. The
                last 100 turns are used, 10,000 characters of each. Default: none.
            session_id: ID of the user's session, for a semantic cache per session. Default: none.
            use_cache: Whether to return and store cached results. Default: ``True``.
            max_results_per_query: Maximum number of results from each index, 1 to 1000, if several are open. Default:
                ``federation.max_results_per_query``, 100.

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
        options = query_options(
            indexes=index_ids,
            top_k=top_k,
            mode=mode,
            score_threshold=score_threshold,
            transforms=transforms,
            variants=variants,
            history=history,
            session_id=session_id,
            use_cache=use_cache,
            max_results_per_query=max_results_per_query,
        )
        return list((await self._search(query, filters, options)).hits)

    @property
    def token_counter(self) -> TokenCounter:
        """What measures contexts: the first index's.

        Raises:
            ConfigurationError: It has none.
        """
        return next(iter(self.indexes.values())).token_counter

    def query_parts(self, *, with_embedder: bool) -> Iterable[object]:
        """Return the parts that queries use, those of all indexes."""
        own = (pipeline.query_parts(with_embedder=with_embedder) for pipeline in self.indexes.values())
        return (*self._stages.models, *chain.from_iterable(own))

    @property
    def _held(self) -> Sequence[object]:
        return (self._lazy_answer_writer.made, *self._owned, *self._stages.models, *self.indexes.values())
