"""Queries to one index or several: search, context and answer."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from retrieval_core.config.model import named_mode
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.answer import AnswerEvidence, EvidenceSearch, Question
from retrieval_core.pipeline.context import check_citations, list_documents, make_context, with_budget
from retrieval_core.pipeline.lifecycle import Lifecycle
from retrieval_core.pipeline.options import AnswerOptions, QueryOptions, answer_options, checked_values, query_options
from retrieval_core.pipeline.results import answer_many, evaluated
from retrieval_core.pipeline.stages.transform import normalize
from retrieval_core.run.caching import Lazy
from retrieval_core.run.outcomes import raise_faults
from retrieval_core.run.sync import events_of
from retrieval_core.run.twins import sync_twin, with_options
from retrieval_core.types import RetrievalResult
from retrieval_core.types.escapes import Display

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

    from retrieval_core.config import AnswerConfig
    from retrieval_core.pipeline.answer import AnswerOutcome
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.engine import Engine
    from retrieval_core.pipeline.options import Filters
    from retrieval_core.pipeline.results import QueryOutcome
    from retrieval_core.pipeline.several import Retrieval
    from retrieval_core.pipeline.stages.embed import QueryEmbedder
    from retrieval_core.pipeline.stages.state import Plan
    from retrieval_core.ports import Evaluator, Message, ResultCache, Store, TokenCounter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import (
        Answer,
        AnswerEvent,
        Citation,
        CitationCheck,
        ContextPack,
        DocumentInfo,
        Query,
    )

    History = Sequence[Message | Mapping[str, Any]]


class QueryEngine(Display, Lifecycle):
    """Searches documents, builds contexts and answers questions; the base of all indexes and pipelines.

    Each method has an asynchronous twin whose name begins with ``a``, such as :meth:`aretrieve`. Synchronous methods
    also work while an event loop is running, as in a notebook, and block its thread.
    """

    _engine: Engine
    """Runs the stages."""
    _retrieval: Retrieval
    """The same, or what stands before it."""
    _by_meaning: Retrieval | None
    """Searches by meaning, with no other stage, for an answer where ``_retrieval`` fails; ``None`` without vectors."""
    _filters: bool
    """Whether there is a relevance filter."""
    _evaluator: Evaluator | None
    _questions: QueryEmbedder | None
    """What embeds many questions at once."""
    _stores: Mapping[str, Store]
    """Where passages are read, by the name of the index; of one index, the name is empty."""
    _lazy_answer_writer: Lazy[AnswerWriter]

    @property
    @abstractmethod
    def token_counter(self) -> TokenCounter:
        """The token counter of contexts.

        Raises:
            ConfigurationError: There is none.
        """

    @property
    def cache(self) -> ResultCache | None:
        """The cache of results; ``None`` if there is none."""
        return self._engine.kept.cache

    def _answering_with(self, answer_writer: AnswerWriter | Lazy[AnswerWriter] | None) -> Lazy[AnswerWriter]:
        """Return what answers, made when the first question is to be answered: most are only searched for."""
        if isinstance(answer_writer, Lazy):
            return answer_writer
        held = Lazy(lambda: answer_writer or _default_answer_writer(self.config.answer))
        if answer_writer is not None:
            held.get()  # and so closed, used or not
        return held

    @with_options(QueryOptions)
    async def aretrieve(
        self,
        query: str,
        filters: Filters = None,
        **options: Unpack[QueryOptions],
    ) -> RetrievalResult:
        """Search the index and return the best chunks with their scores.

        Keyword and vector search run in parallel and are fused. If one of them fails, you get the results of the other,
        and ``degraded`` says so. Identical queries at the same time are run once.

        Args:
            query: Text to search for, at most 10,000 characters (``query.max_length``); the rest is cut off.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            **options: Options of the query; see :class:`QueryOptions`.

        Returns:
            The hits, best first, with the relevance judgement, timings and degradations. With several indexes, each hit
            has a ``source_index``.

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

            async with open_index("notes.db") as index:
                result = await index.aretrieve("how far away is the moon", top_k=3)
                for hit in result.hits:
                    print(hit.score, hit.chunk.source, hit.chunk.text)
        """
        given = query_options(options)
        plan = self._retrieval.plan(filters, given)
        normal = normalize(query, self.config.query)
        await self._load(self._parts_for(given))
        return await self._retrieve(normal, plan)

    retrieve = sync_twin(aretrieve, begins_here=True)

    async def aload(self) -> None:
        """Load the models, and the index if it is small, so that the first query doesn't have to wait for them.

        Otherwise the first query loads the models, and repeated queries load the index. A component that can't be
        loaded is skipped; queries report why.

        Example::

            async with open_index("notes.db") as index:
                await index.aload()
        """
        await self._load(self._parts_to_load[True])
        for store in self._stores.values():
            await self._loading().call("load", store.hold)

    load = sync_twin(aload, seconds=None)

    def _parts_for(self, options: QueryOptions) -> Iterable[object]:
        """Return the parts that a query uses: the embedder if vectors are searched, or compared with a threshold."""
        search = self.config.search
        by_keyword = named_mode(options.get("mode") or search.mode) == "lexical"
        has_threshold = search.score_threshold is not None or options.get("score_threshold") is not None
        return self._parts_to_load[has_threshold or not by_keyword]

    @cached_property
    def _parts_to_load(self) -> Mapping[bool, Sequence[object]]:
        """The parts of queries that can be loaded, with and without the embedder."""
        parts = {with_embedder: self.query_parts(with_embedder=with_embedder) for with_embedder in (True, False)}
        return {key: [part for part in each if hasattr(part, "load")] for key, each in parts.items()}

    @abstractmethod
    def query_parts(self, *, with_embedder: bool) -> Iterable[object]:
        """Return the components that queries use.

        Args:
            with_embedder: Whether the embedder is included.
        """

    async def _retrieve(self, query: Query, plan: Plan) -> RetrievalResult:
        with self._watched():
            result = await self._retrieval.retrieve(self._run(), query, plan)
            self._told(result)
            return result

    @with_options(QueryOptions)
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
        plan = self._engine.plan(filters, query_options(options))
        return await self._engine.find_kept(self._run(), normalize(query, self.config.query), plan)

    async def ainvalidate(self) -> None:
        """Invalidate all cached results, for example after another program changed the documents.

        Not needed after writes through :class:`~retrieval_core.Index`, or if the store has a version.

        Raises:
            ServiceError: A shared cache can't be reached; this process no longer uses its results.
        """
        await self._engine.kept.forget()

    invalidate = sync_twin(ainvalidate)

    @with_options(QueryOptions)
    async def aretrieve_many(
        self,
        queries: Sequence[str],
        filters: Filters = None,
        **options: Unpack[QueryOptions],
    ) -> tuple[QueryOutcome, ...]:
        """Search for several queries: embed them together and search them in parallel.

        The arguments apply to all queries. If one query fails, you still get the results of the others.

        Args:
            queries: Texts to search for, each at most 10,000 characters (``query.max_length``).
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            **options: Options of the query; see :class:`QueryOptions`.

        Returns:
            One outcome per query, in the order of the queries, with either ``result`` or ``error``.

        Raises:
            FilterError: The filter is invalid.
            InvalidParameterError: An argument is out of range, or ``queries`` is not a list.
            ConfigurationError: A required package or setting is missing.

        Example::

            async with open_index("notes.db") as index:
                for outcome in await index.aretrieve_many(["distance of the moon", "distance of the sun"]):
                    if outcome.result is not None:
                        print(outcome.query, outcome.result.hits[0].chunk.source)
        """
        given = query_options(options)
        plan = self._retrieval.plan(filters, given)
        await self._load(self._parts_for(given))
        return await answer_many(
            self._run,
            self._questions,
            lambda query: self._retrieve(query, plan),
            queries,
            plan=plan,
            config=self.config,
        )

    retrieve_many = sync_twin(aretrieve_many)
    process_query_batch = retrieve_many
    """The specification's name."""

    @with_options(QueryOptions)
    async def acontext(
        self,
        query: str,
        filters: Filters = None,
        *,
        max_tokens: int | None = None,
        **options: Unpack[QueryOptions],
    ) -> ContextPack:
        """Return the context for a language model: complete passages with citations, within a token budget.

        The best hits come first, each with its section and neighboring chunks as the section ``context`` of the
        configuration sets. ``ledger`` lists every chunk that was considered, and whether it was kept, shortened or
        dropped.

        Args:
            query: Text to search for, at most 10,000 characters (``query.max_length``); the rest is cut off.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            max_tokens: Token budget of the context, at least 1. Default: ``context.max_tokens``, 12,000.
            **options: Options of the query; see :class:`QueryOptions`.

        Returns:
            The context as text in ``context_pack``, its ``passages``, ``citations`` and token count. With several
            indexes, IDs begin with the name of the index and a colon.

        Raises:
            QueryValidationError: The query is empty, or is not text.
            FilterError: The filter is invalid, or the store doesn't support one of its operators.
            InvalidParameterError: An argument is out of range, or the index doesn't support it.
            EmbeddingError: The query could not be embedded, and the store has no keyword search.
            StoreError: The index can't be read. With several indexes: none can be read.
            ConfigurationError: A required package or setting is missing, such as a token counter.
            RetrievalError: With ``strict``: any failure that is otherwise listed in ``degraded``. With
                ``raise_on_error``: nothing could be searched.

        Example::

            async with open_index("notes.db") as index:
                pack = await index.acontext("how far away is the moon", max_tokens=2000)
                print(pack.context_pack)
                print(pack.token_count, pack.citations)
        """
        given = query_options(options)
        find = self._find_evidence(self._retrieval, query, filters, max_tokens, given)
        await self._load(self._parts_for(given))
        with self._watched():
            evidence = await find(self._run())
            pack = evidence.pack
            self._told(replace(evidence.result, latency_ms=pack.latency_ms, degraded=pack.degraded))
            return pack

    context = sync_twin(acontext)

    def _find_evidence(
        self, retrieval: Retrieval, query: str, filters: Filters, max_tokens: int | None, options: QueryOptions
    ) -> Callable[[Run], Awaitable[AnswerEvidence]]:
        """Return what finds the passages for a question and packs them, checked as far as that can be done before."""
        settings = with_budget(self.config.context, max_tokens)
        plan = retrieval.plan(filters, options)
        primaries = plan.top_k
        if not self._filters:  # so that the ledger and the trace name what was reranked in vain
            plan = replace(plan, top_k=plan.shortlist)
        normal = normalize(query, self.config.query)

        async def find(run: Run) -> AnswerEvidence:
            result = await retrieval.retrieve(run, normal, plan)
            pack = await make_context(
                run,
                result,
                settings,
                self.token_counter,
                primaries=primaries,
                stores=self._stores,
                condition=plan.condition,
                strict=self.config.strict,
            )
            return AnswerEvidence(result, pack)

        return find

    def adocuments(self) -> AsyncGenerator[DocumentInfo]:
        """List the documents in the index, ordered by id, without their texts.

        Documents are read page by page while you iterate, so large indexes need little memory. Documents of several
        indexes are listed index by index; ``source_index`` is the name of the index.

        Yields:
            One :class:`~retrieval_core.types.DocumentInfo` per document, with ``id``, ``title``, ``source``,
            ``chunks`` (number of chunks), ``metadata`` and ``timestamp``.

        Raises:
            IndexNotFoundError: The index does not exist yet.
            StoreError: The index can't be read, or its store can't list documents, such as a Qdrant collection that
                another program filled.
            ServiceError: The service failed, or did not respond in time.

        Example::

            async with open_index("notes.db") as index:
                async for document in index.adocuments():
                    print(document.id, document.chunks)
        """
        return list_documents(self._run, self._stores)

    documents = sync_twin(adocuments)

    async def averify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with the index as it is now.

        Args:
            citations: Citations, such as ``answer.sources`` or ``pack.sources``.

        Returns:
            One check per citation: ``verdict`` is ``exact``, ``equivalent`` or ``not_found``.

        Raises:
            StoreError: An index can't be read.
            ServiceError: A service failed, or did not respond in time.

        Example::

            async with open_index("notes.db") as index:
                answer = await index.aanswer("How far away is the moon?")
                print([check.verdict for check in await index.averify(answer.sources)])
        """
        return await check_citations(self._run(), self._stores, citations)

    verify = sync_twin(averify)

    async def aevaluate(self, result: RetrievalResult, response: str) -> RetrievalResult:
        """Score a result for the response that was written with it; ``evaluation.kind`` must be set.

        Args:
            result: The result of a search.
            response: The response, as text.

        Returns:
            The result with its scores in ``evaluation``.

        Raises:
            InvalidParameterError: No evaluator is configured.

        Example::

            async with open_index("notes.db", config=load_config(overrides={"evaluation.kind": "auto"})) as index:
                result = await index.aretrieve("how far away is the moon")
                print((await index.aevaluate(result, "384,400 km")).evaluation_scores)
        """
        evaluator = self._evaluator
        if evaluator is None:
            msg = "there is no evaluator; set evaluation.kind, for instance to auto"
            raise InvalidParameterError(msg)
        query = str(result.metadata.get("query_normalized", result.query))
        return await evaluated(self._run(), evaluator, query, result, response, strict=self.config.strict)

    evaluate = sync_twin(aevaluate)

    @with_options(QueryOptions, AnswerOptions)
    async def aanswer(
        self,
        query: str,
        filters: Filters = None,
        **options: Unpack[AnswerOptions],
    ) -> Answer:
        """Answer a question from the documents, with citations you can verify.

        A configured language model writes the answer; otherwise it consists of the best sentences of the documents. If
        the documents don't contain the answer, ``kind`` is ``abstained``. ``fallbacks`` lists the steps that failed and
        what replaced them; ``error`` is set if the answer is incomplete.

        Args:
            query: Question to answer, at most 10,000 characters (``query.max_length``); the rest is cut off.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            **options: Options of the question; see :class:`AnswerOptions`.

        Returns:
            The answer: ``text``, ``sentences`` with their citations, ``sources``, ``confidence`` and ``pack``, the
            context that it is based on.

        Raises:
            QueryValidationError: The query is empty, or is not text.
            FilterError: The filter is invalid, or the store doesn't support one of its operators.
            InvalidParameterError: An argument is out of range.
            EmbeddingError: The query could not be embedded, and the store has no keyword search.
            StoreError: The index can't be read. With several indexes: none can be read.
            ConfigurationError: A required package or setting is missing.
            RetrievalError: With ``strict`` or ``raise_on_error``: the answer could not be completed.

        Example::

            async with open_index("notes.db") as index:
                answer = await index.aanswer("How far away is the moon?")
                print(answer.text)
                print([source.source for source in answer.sources])
        """
        return await self._work(query, filters, answer_options(options), raises=True)(_nobody_listens)

    answer = sync_twin(aanswer)

    @with_options(QueryOptions, AnswerOptions)
    def aanswer_stream(
        self,
        query: str,
        filters: Filters = None,
        **options: Unpack[AnswerOptions],
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a question from the documents, and yield the answer's events as they happen.

        The first event is ``retrieval_done``, after any fallbacks; the last one is ``done`` with the whole answer, also
        if the answer is incomplete. Leave the loop to stop the language model. Streaming answers are never retried: the
        user has already seen part of the text.

        Args:
            query: Question to answer, at most 10,000 characters (``query.max_length``); the rest is cut off.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            **options: Options of the question; see :class:`AnswerOptions`.

        Yields:
            Events, each with a ``type``: ``retrieval_done``, ``fallback``, ``answer_chunk`` (the next piece of text, in
            ``content``), ``citation``, ``verification``, ``error`` and ``done``.

        Raises:
            QueryValidationError: The query is empty, or is not text.
            FilterError: The filter is invalid, or the store doesn't support one of its operators.
            InvalidParameterError: An argument is out of range.
            EmbeddingError: The query could not be embedded, and the store has no keyword search.
            StoreError: The index can't be read. With several indexes: none can be read.
            ConfigurationError: A required package or setting is missing.

        Example::

            async with open_index("notes.db") as index:
                async for event in index.aanswer_stream("How far away is the moon?"):
                    if event.type == "answer_chunk":
                        print(event.content, end="")
        """
        return events_of(self._work(query, filters, answer_options(options)))

    answer_stream = sync_twin(aanswer_stream)

    @with_options(QueryOptions, AnswerOptions, without=("history",))
    def aanswer_with_history(
        self,
        query: str,
        conversation_history: History,
        filters: Filters = None,
        **options: Unpack[AnswerOptions],
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a question of a conversation, and yield the answer's events as they happen.

        The first event is ``retrieval_done``, after any fallbacks; the last one is ``done`` with the whole answer, also
        if the answer is incomplete. Leave the loop to stop the language model. Streaming answers are never retried: the
        user has already seen part of the text.

        Args:
            query: Question to answer, at most 10,000 characters (``query.max_length``); the rest is cut off.
            conversation_history: Earlier turns of the conversation, oldest first, such as ``{"role": "user", "content":
                "Hi"}``. The last 100 turns are used, 10,000 characters of each.
            filters: Metadata filter that every result must match, such as ``{"year": {"$gte": 2024}}``, or one built
                with :func:`retrieval_core.where`. Default: no filter.
            **options: Options of the question; see :class:`AnswerOptions`.

        Yields:
            Events, each with a ``type``: ``retrieval_done``, ``fallback``, ``answer_chunk`` (the next piece of text, in
            ``content``), ``citation``, ``verification``, ``error`` and ``done``.

        Raises:
            QueryValidationError: The query is empty, or is not text.
            FilterError: The filter is invalid, or the store doesn't support one of its operators.
            InvalidParameterError: An argument is out of range.
            EmbeddingError: The query could not be embedded, and the store has no keyword search.
            StoreError: The index can't be read. With several indexes: none can be read.
            ConfigurationError: A required package or setting is missing.

        Example::

            async with open_index("notes.db") as index:
                turns = [{"role": "user", "content": "Tell me about the moon."}]
                async for event in index.aanswer_with_history("How far away is it?", turns):
                    if event.type == "answer_chunk":
                        print(event.content, end="")
        """
        given = answer_options(options, history=conversation_history)
        return events_of(self._work(query, filters, given))

    answer_with_history = sync_twin(aanswer_with_history)

    def _work(
        self, query: str, filters: Filters, options: AnswerOptions, *, raises: bool = False
    ) -> Callable[[Callable[[AnswerEvent], None]], Awaitable[Answer]]:
        """Return what answers a question and tells its listener, checked as far as that can be done before.

        With ``raises``, what keeps an answer from being complete is raised where it must not be hidden.
        """
        given: dict[str, Any] = dict(checked_values(options))
        max_tokens, prompt, verify = (given.pop(name, None) for name in ("max_tokens", "prompt_override", "verify"))
        verify = self.config.answer.verify if verify is None else verify
        given_options = QueryOptions(**given)
        searches = (EvidenceSearch(self._find_evidence(self._retrieval, query, filters, max_tokens, given_options)),)
        if self._by_meaning is not None:
            by_meaning: QueryOptions = {**given_options, "mode": "dense", "transforms": ()}
            find = self._find_evidence(self._by_meaning, query, filters, max_tokens, by_meaning)
            searches += (EvidenceSearch(find, "dense"),)
        question = Question(query, given.get("history", ()), prompt, verify=verify, strict=self.config.strict)

        async def work(tell: Callable[[AnswerEvent], None]) -> Answer:
            # Making it imports what only answers need.
            answer_writer = self._lazy_answer_writer.made or await asyncio.to_thread(self._lazy_answer_writer.get)
            if verify and answer_writer.verifier is None and self.config.strict:
                msg = "verify needs a verifier, and there is none. Set llm.kind or answer.verifier."
                raise InvalidParameterError(msg)
            answering = (answer_writer.llm, answer_writer.scorer, answer_writer.verifier if verify else None)
            await self._load((*self._parts_for(given_options), *answering))
            with self._watched():
                outcome = await answer_writer.answer(self._run(), question, searches, tell)
                if raises and outcome.failed is not None:
                    strict = self.config.strict or self.config.raise_on_error
                    raise_faults((outcome.failed,), strict=strict)
                self._told(_as_result(outcome))
            return outcome.answer

        return work


def _as_result(outcome: AnswerOutcome) -> RetrievalResult:
    """Return what observers are told of an answer: the result it rests on, with its time and all that failed."""
    answer = outcome.answer
    found = outcome.result or RetrievalResult(answer.query, (), "", {"error": answer.error or "search"}, 0.0)
    return replace(found, latency_ms=answer.latency_ms, degraded=answer.degraded)


def _default_answer_writer(config: AnswerConfig) -> AnswerWriter:
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter  # noqa: PLC0415 - not every question is answered

    return AnswerWriter(config=config)


def _nobody_listens(_event: AnswerEvent) -> None:
    pass
