"""Several indexes, searched as one: federated search."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack

from retrieval_core.pipeline.answer.asked import Evidence, Search
from retrieval_core.pipeline.answer.asking import Answers
from retrieval_core.pipeline.context import with_budget
from retrieval_core.pipeline.evaluating import evaluated
from retrieval_core.pipeline.federation.context import check_federated, federated_context
from retrieval_core.pipeline.federation.options import SeveralOptions, checked_weights, federated_query
from retrieval_core.pipeline.federation.results import make_result
from retrieval_core.pipeline.federation.searching import Bounds, Members, Round, search_once
from retrieval_core.pipeline.federation.together import Together, plan_of, transform_query
from retrieval_core.pipeline.planning import condition_of
from retrieval_core.pipeline.plugging import kept_reranks, reranker_chain
from retrieval_core.pipeline.search_loop import context_of, raise_what_must_not_be_hidden
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.pipeline.stages.prune import prune
from retrieval_core.pipeline.stages.rewrite import Rewriting, rewrite_while_poor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.federation.options import FederatedQuery
    from retrieval_core.pipeline.many import QueryOutcome
    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.ports import Evaluator, Pruner, RelevanceFilter, Reranker, Rewriter, TokenCounter
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.lazy import Lazy
    from retrieval_core.run.observe import Observer
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Citation, CitationCheck, ContextPack, Hit, Query, RetrievalResult
    from retrieval_core.types.filters import Filter, MetadataFilter

    Filters = Filter | MetadataFilter | Mapping[str, Any] | None


class FederatedIndex(Answers):
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
        self._members = Members(
            self.indexes,
            checked_weights(self.indexes, given),
            reranker_chain(reranker),
            relevance_filter,
            pruner,
            rewriter,
            kept_reranks(self.config.cache, self._clock.now),
        )
        self._together = together or Together()
        self._evaluator = evaluator
        self._lazy_answer_writer = self._answering_with(answer_writer)
        self._owned = tuple(owned)

    @property
    def weights(self) -> Mapping[str, float]:
        """Each index's weight, by its name."""
        return dict(self._members.weights)

    def retrieve(self, query: str, filters: Filters = None, **options: Unpack[SeveralOptions]) -> RetrievalResult:
        """Find the passages of all indexes that answer a question; see :meth:`aretrieve`."""
        return self.sync.run(self.aretrieve(query, filters, **options))

    async def aretrieve(
        self, query: str, filters: Filters = None, **options: Unpack[SeveralOptions]
    ) -> RetrievalResult:
        """Find the passages of all indexes that answer a question.

        Args:
            query: The question.
            filters: What every passage must pass, typed or as JSON.
            options: See :class:`~retrieval_core.pipeline.federation.options.SeveralOptions`.

        Returns:
            Hits whose ``source_index`` says where they are from; an id is unique in its index only. ``metadata`` says
            of each index that answered how much it found, and how many of the hits are its own.

        Raises:
            QueryValidationError: The query is empty or no text.
            FilterError: The filter is not well formed, or an index lacks one of its operators.
            InvalidParameterError: An option is outside its range, or asks for what an index cannot do.
            RetrievalError: No index can be used; or, with ``strict``, whatever would otherwise be listed in
                ``result.degraded``; with ``raise_on_error``, what kept every index from being searched.
        """
        asked, condition = self._asked(options), condition_of(filters)
        return await self._answer(normalize(query, self.config.query), asked, condition)

    async def aretrieve_many(
        self, queries: Sequence[str], filters: Filters = None, **options: Unpack[SeveralOptions]
    ) -> tuple[QueryOutcome, ...]:
        """Answer several questions: embedded together, searched side by side, each for itself.

        Args:
            queries: The questions.
            filters: What every passage must pass.
            options: See :class:`~retrieval_core.pipeline.federation.options.SeveralOptions`; they hold for all
                questions.

        Returns:
            One outcome for each question, in their order. A question that fails does not touch the others, and what an
            index cannot do, such as a mode or a transformer that it lacks, is the error of each question.

        Raises:
            FilterError: The filter is not well formed.
            InvalidParameterError: An option is outside its range.
        """
        from retrieval_core.pipeline.many import answer_many  # noqa: PLC0415 - most programs ask one at a time

        asked, condition = self._asked(options), condition_of(filters)
        return await answer_many(
            self._run,
            self._together.questions,
            lambda query: self._answer(query, asked, condition),
            queries,
            plan=plan_of(asked, self.config),
            config=self.config,
        )

    def retrieve_many(
        self, queries: Sequence[str], filters: Filters = None, **options: Unpack[SeveralOptions]
    ) -> tuple[QueryOutcome, ...]:
        """Answer several questions; see :meth:`aretrieve_many`."""
        return self.sync.run(self.aretrieve_many(queries, filters, **options))

    process_query_batch = retrieve_many
    """The specification's name."""

    async def asearch_multiple_indexes(
        self, query: str, index_ids: Sequence[str], filters: Filters = None, **options: Unpack[SeveralOptions]
    ) -> list[Hit]:
        """Return the hits of some of the indexes, by the specification's name; the same as :meth:`aretrieve`."""
        options["indexes"] = index_ids
        return list((await self.aretrieve(query, filters, **options)).hits)

    def search_multiple_indexes(
        self, query: str, index_ids: Sequence[str], filters: Filters = None, **options: Unpack[SeveralOptions]
    ) -> list[Hit]:
        """Return the hits of some of the indexes, by the specification's name; the same as :meth:`retrieve`."""
        return self.sync.run(self.asearch_multiple_indexes(query, index_ids, filters, **options))

    def context(
        self, query: str, filters: Filters = None, *, max_tokens: int | None = None, **options: Unpack[SeveralOptions]
    ) -> ContextPack:
        """Return what a language model should be shown to answer a question; see :meth:`acontext`."""
        return self.sync.run(self.acontext(query, filters, max_tokens=max_tokens, **options))

    async def acontext(
        self, query: str, filters: Filters = None, *, max_tokens: int | None = None, **options: Unpack[SeveralOptions]
    ) -> ContextPack:
        """Return what a language model should be shown to answer a question; see :meth:`RetrievalPipeline.acontext`.

        Ids in the pack begin with the name of their index and a colon, in its citations too.

        Raises:
            ConfigurationError: Nothing is there that counts tokens.
            RetrievalError: As :meth:`aretrieve`.
        """
        find = self._evidence(query, filters, max_tokens, options, self._members)
        with self._watched():
            evidence = await find(self._run())
            self._told(evidence.result)
            return evidence.pack

    def _evidence(
        self, query: str, filters: Filters, max_tokens: int | None, options: SeveralOptions, members: Members
    ) -> Callable[[Run], Awaitable[Evidence]]:
        """Return what finds the passages for a question and puts them into a pack, checked as far as that goes."""
        settings = with_budget(self.config.context, max_tokens)
        asked, condition = self._asked(options), condition_of(filters)
        normal = normalize(query, self.config.query)

        async def find(run: Run) -> Evidence:
            result = await self._find(run, normal, asked, condition, members)
            pack = await federated_context(
                run,
                members.pipelines,
                result,
                settings,
                self.token_counter,
                primaries=asked.top_k,
                condition=condition,
                strict=self.config.strict,
            )
            return Evidence(result, pack)

        return find

    def _searches(
        self, query: str, filters: Filters, max_tokens: int | None, options: QueryOptions
    ) -> tuple[Search, ...]:
        full = Search(self._evidence(query, filters, max_tokens, {**options}, self._members))
        if any(pipeline.embedder is None for pipeline in self._members.pipelines.values()):
            return (full,)
        bare = Members(self._members.pipelines, self._members.weights)
        by_meaning: SeveralOptions = {**options, "mode": "dense", "transforms": ()}
        return full, Search(self._evidence(query, filters, max_tokens, by_meaning, bare), "dense")

    @property
    def _embedder_id(self) -> str | None:
        embedders = {getattr(pipeline.embedder, "id", None) for pipeline in self._members.pipelines.values()}
        return embedders.pop() if len(embedders) == 1 else None

    @cached_property
    def token_counter(self) -> TokenCounter:
        """What measures contexts: the first index's.

        Raises:
            ConfigurationError: It has none.
        """
        return next(iter(self._members.pipelines.values())).token_counter

    async def averify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with what their indexes say now, each index in one read.

        Raises:
            RetrievalError: An index cannot be read, or not in time.
        """
        return await check_federated(self._run(), self._members.pipelines, citations)

    def verify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with what their indexes say now; see :meth:`averify`."""
        return self.sync.run(self.averify(citations))

    def _asked(self, options: SeveralOptions) -> FederatedQuery:
        members = self._members
        reranked = self.config.reranker.candidates if members.rerankers else 0
        return federated_query(options, members.weights, self.config, reranked=reranked)

    async def _answer(self, query: Query, asked: FederatedQuery, condition: Filter | None) -> RetrievalResult:
        with self._watched():
            result = await self._find(self._run(), query, asked, condition, self._members)
            self._told(result)
            return result

    async def _find(
        self, run: Run, query: Query, asked: FederatedQuery, condition: Filter | None, members: Members
    ) -> RetrievalResult:
        config = self.config
        bounds = Bounds.of(run, members)
        looked_at = await transform_query(bounds.transform, query, asked, self._together, config)
        question = looked_at.query.text
        search = partial(search_once, members=members, question=question, condition=condition, config=config)
        # Each index looks at the question as it was asked, and finds what was already made of it.
        first = await search(bounds, query, asked=looked_at.asked, is_first=True)
        first = replace(first, query=looked_at.query)
        rounds = [first]
        rewriting = Rewriting(first)
        if members.rewriter is not None:
            later = count(2)

            async def search_again(again: Query) -> Round:
                rounds.append(await search(bounds.in_round(next(later)), again, asked=asked.in_other_words))
                return rounds[-1]

            rewriting = await rewrite_while_poor(
                bounds.rewrite,
                members.rewriter,
                first,
                search_again=search_again,
                context_of=lambda result: context_of(result.hits, config).text,
                threshold=config.rewriter.relevance_threshold,
                max_attempts=config.rewriter.max_attempts,
                settings=config.query,
            )
            # Those of later searches too: an index that failed there is not to keep the others' hits back.
            own = tuple(failure for failure in rewriting.failures if config.strict or failure.stage == "rewrite")
            raise_what_must_not_be_hidden(own, strict=config.strict)
        best = rewriting.best
        if members.pruner is not None and best.hits:
            pruned = await prune(run, members.pruner, question, best.hits, concurrency=config.pruner.concurrency)
            raise_what_must_not_be_hidden(pruned.failures, strict=config.strict)
            best = replace(best, pruned=pruned)
        rewriting = replace(rewriting, best=best, failures=looked_at.failures + rewriting.failures)
        result = make_result(run, query, rewriting, rounds, config, condition=condition, weights=members.weights)
        if self._evaluator is not None:
            text = result.formatted_context
            result = await evaluated(run, self._evaluator, query.text, result, text, strict=config.strict)
        return result

    @property
    def _held(self) -> Sequence[object]:
        members = self._members
        plugged_in = (self._evaluator, members.rewriter, members.pruner, members.relevance_filter, *members.rerankers)
        return (self._lazy_answer_writer.made, *self._owned, *plugged_in, *self.indexes.values())
