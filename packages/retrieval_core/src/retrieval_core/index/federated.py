"""Several indexes, searched as one: federated search."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Unpack

from retrieval_core.pipeline.federation.options import checked_weights
from retrieval_core.pipeline.federation.retrieval import FederatedRetrieval
from retrieval_core.pipeline.federation.together import Together
from retrieval_core.pipeline.plugging import kept_reranks, reranker_chain
from retrieval_core.pipeline.query_engine import QueryEngine
from retrieval_core.pipeline.search_loop import Stages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.ports import Evaluator, Pruner, RelevanceFilter, Reranker, Rewriter, TokenCounter
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.lazy import Lazy
    from retrieval_core.run.observe import Observer
    from retrieval_core.types import Hit


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

    async def asearch_multiple_indexes(
        self, query: str, index_ids: Sequence[str], filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> list[Hit]:
        """Return the hits of some of the indexes, by the specification's name; the same as :meth:`aretrieve`."""
        options["indexes"] = index_ids
        return list((await self.aretrieve(query, filters, **options)).hits)

    def search_multiple_indexes(
        self, query: str, index_ids: Sequence[str], filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> list[Hit]:
        """Return the hits of some of the indexes, by the specification's name; the same as :meth:`retrieve`."""
        return self.sync.run(self.asearch_multiple_indexes(query, index_ids, filters, **options))

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
