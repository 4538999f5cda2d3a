"""The questions that one index and several can be asked: for passages, for a context and for an answer."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from retrieval_core.config.modes import named_mode
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.answer.values import AnswerEvidence, Question, Search
from retrieval_core.pipeline.context import check_citations, make_context, with_budget
from retrieval_core.pipeline.lifecycle import Lifecycle
from retrieval_core.pipeline.options import QueryOptions, turns
from retrieval_core.pipeline.results import evaluated
from retrieval_core.pipeline.search_loop import Stages, raise_faults
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.run.events import events_of, in_step
from retrieval_core.run.lazy import Lazy
from retrieval_core.types import RetrievalResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from retrieval_core.config import AnswerConfig
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.answer.values import AnswerOutcome
    from retrieval_core.pipeline.many import QueryOutcome
    from retrieval_core.pipeline.options import AnswerOptions
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.stages.embed import Questions
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.ports import Message, Store, TokenCounter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Answer, AnswerEvent, Citation, CitationCheck, ContextPack, DocumentInfo, Query

    History = Sequence[Message | Mapping[str, Any]]


class Retrieval(Protocol):
    """One way of finding the passages that answer a question."""

    def plan(self, filters: Filters, options: QueryOptions) -> Plan:
        """Put settings and a caller's arguments together.

        Raises:
            RetrievalError: Something is asked wrongly.
            TypeError: There is no such argument.
        """
        ...

    async def retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query.

        Raises:
            RetrievalError: As :meth:`QueryEngine.aretrieve`.
        """
        ...


class QueryEngine(Lifecycle):
    """Answers questions from what is indexed: with passages, with a context for a model, or with an answer.

    Every method exists twice: as it is, and with an ``a`` before its name as a coroutine function or an asynchronous
    iterator. The former may be called where an event loop is running, as in a notebook, and then blocks that loop's
    thread.
    """

    _retrieval: Retrieval
    _by_meaning: Retrieval | None
    """Searches by meaning, with no other stage, for an answer where ``_retrieval`` fails; ``None`` without vectors."""
    _stages: Stages
    _questions: Questions | None
    """What embeds many questions at once."""
    _stores: Mapping[str, Store]
    """Where passages are read, by the name of the index; of one index, the name is empty."""
    _lazy_answer_writer: Lazy[AnswerWriter]

    @property
    @abstractmethod
    def token_counter(self) -> TokenCounter:
        """What measures contexts.

        Raises:
            ConfigurationError: There is none.
        """

    def _answering_with(self, answer_writer: AnswerWriter | Lazy[AnswerWriter] | None) -> Lazy[AnswerWriter]:
        """Return what answers, made when the first question is to be answered: most are only searched for."""
        if isinstance(answer_writer, Lazy):
            return answer_writer
        held = Lazy(lambda: answer_writer or _default_answer_writer(self.config.answer))
        if answer_writer is not None:
            held.get()  # and so closed, used or not
        return held

    def retrieve(self, query: str, filters: Filters = None, **options: Unpack[QueryOptions]) -> RetrievalResult:
        """Find the passages that answer a question; see :meth:`aretrieve`."""
        return self.sync.run(self.aretrieve(query, filters, **options))

    async def aretrieve(self, query: str, filters: Filters = None, **options: Unpack[QueryOptions]) -> RetrievalResult:
        """Find the passages that answer a question.

        The same question asked by several callers at a time is answered once; asked again, it may come from the cache.

        Args:
            query: The question.
            filters: What every passage must pass, typed or as JSON.
            options: See :class:`~retrieval_core.pipeline.options.QueryOptions`.

        Returns:
            Hits, and what was decided on the way. Of several indexes, ``source_index`` says where a hit is from, since
            an id is unique in its index only, and ``metadata`` has how much each index found.

        Raises:
            QueryValidationError: The query is empty or no text.
            FilterError: The filter is not well formed, or the store lacks one of its operators.
            InvalidParameterError: An option is outside its range, or asks for what an index cannot do.
            EmbeddingError: The query could not be embedded, and the store cannot be searched by words.
            StoreError: The index cannot be used; of several, none can.
            ConfigurationError: Something needed is not installed or not set.
            RetrievalError: With ``strict``, whatever would otherwise be listed in ``result.degraded``; with
                ``raise_on_error``, what kept everything from being searched.
        """
        plan = self._retrieval.plan(filters, options)
        normal = normalize(query, self.config.query)
        await self._load(self._parts_for(options))
        return await self._retrieve(normal, plan)

    def _parts_for(self, options: QueryOptions) -> Iterable[object]:
        """Return the parts that a query uses: the embedder if vectors are searched, or compared with a threshold."""
        search = self.config.search
        by_keyword = named_mode(options.get("mode") or search.mode) == "lexical"
        has_threshold = search.score_threshold is not None or options.get("score_threshold") is not None
        return self.query_parts(with_embedder=has_threshold or not by_keyword)

    @abstractmethod
    def query_parts(self, *, with_embedder: bool) -> Iterable[object]:
        """Return the parts that queries use."""

    async def _retrieve(self, query: Query, plan: Plan) -> RetrievalResult:
        with self._watched():
            result = await self._retrieval.retrieve(self._run(), query, plan)
            self._told(result)
            return result

    def retrieve_many(
        self, queries: Sequence[str], filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> tuple[QueryOutcome, ...]:
        """Answer several questions; see :meth:`aretrieve_many`."""
        return self.sync.run(self.aretrieve_many(queries, filters, **options))

    process_query_batch = retrieve_many
    """The specification's name."""

    async def aretrieve_many(
        self, queries: Sequence[str], filters: Filters = None, **options: Unpack[QueryOptions]
    ) -> tuple[QueryOutcome, ...]:
        """Answer several questions: embedded together, searched side by side, each for itself.

        Args:
            queries: The questions.
            filters: What every passage must pass.
            options: See :class:`~retrieval_core.pipeline.options.QueryOptions`; they hold for all questions.

        Returns:
            One outcome for each question, in their order. A question that fails does not touch the others; what one of
            several indexes cannot do is the error of each question.

        Raises:
            FilterError: The filter is not well formed.
            InvalidParameterError: An option is outside its range.
        """
        from retrieval_core.pipeline.many import answer_many  # noqa: PLC0415 - most programs ask one at a time

        plan = self._retrieval.plan(filters, options)
        await self._load(self._parts_for(options))
        return await answer_many(
            self._run,
            self._questions,
            lambda query: self._retrieve(query, plan),
            queries,
            plan=plan,
            config=self.config,
        )

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
        everything that was considered what became of it. A store is asked once for all surroundings. Of several
        indexes, ids begin with the name of their index and a colon, in citations too.

        Args:
            query: The question.
            filters: What every passage must pass, neighbours too.
            max_tokens: The budget, at least 1; from the configuration where it is not given.
            options: See :class:`~retrieval_core.pipeline.options.QueryOptions`.

        Raises:
            ConfigurationError: Nothing is there that counts tokens.
            RetrievalError: As :meth:`aretrieve`.
        """
        find = self._find_evidence(self._retrieval, query, filters, max_tokens, options)
        await self._load(self._parts_for(options))
        with self._watched():
            evidence = await find(self._run())
            pack = evidence.pack
            self._told(replace(evidence.result, latency_ms=pack.latency_ms, degraded=pack.degraded))
            return pack

    def _find_evidence(
        self, retrieval: Retrieval, query: str, filters: Filters, max_tokens: int | None, options: QueryOptions
    ) -> Callable[[Run], Awaitable[AnswerEvidence]]:
        """Return what finds the passages for a question and packs them, checked as far as that can be done before."""
        settings = with_budget(self.config.context, max_tokens)
        plan = retrieval.plan(filters, options)
        primaries = plan.top_k
        if self._stages.relevance_filter is None:  # so that the ledger and the trace name what was reranked in vain
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

    def documents(self) -> Iterator[DocumentInfo]:
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

            with open_index("notes.db") as index:
                for document in index.documents():
                    print(document.id, document.chunks)
        """
        return in_step(self.sync, self.adocuments())

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
        from retrieval_core.pipeline.documents import list_documents  # noqa: PLC0415 - few programs list documents

        return list_documents(self._run, self._stores)

    def verify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with what is indexed now; see :meth:`averify`."""
        return self.sync.run(self.averify(citations))

    async def averify(self, citations: Sequence[Citation]) -> tuple[CitationCheck, ...]:
        """Compare citations with what is indexed now, each index in one read.

        Raises:
            RetrievalError: An index cannot be read, or not in time.
        """
        return await check_citations(self._run(), self._stores, citations)

    def evaluate(self, result: RetrievalResult, response: str) -> RetrievalResult:
        """Return a result with its scores for a response; see :meth:`aevaluate`."""
        return self.sync.run(self.aevaluate(result, response))

    async def aevaluate(self, result: RetrievalResult, response: str) -> RetrievalResult:
        """Return a result with its scores for the response that was written with it.

        Raises:
            InvalidParameterError: There is no evaluator.
        """
        evaluator = self._stages.evaluator
        if evaluator is None:
            msg = "there is no evaluator; configure evaluation.enabled = true"
            raise InvalidParameterError(msg)
        query = str(result.metadata.get("query_normalized", result.query))
        return await evaluated(self._run(), evaluator, query, result, response, strict=self.config.strict)

    def answer(self, query: str, filters: Filters = None, **options: Unpack[AnswerOptions]) -> Answer:
        """Answer a question from its passages; see :meth:`aanswer`."""
        return self.sync.run(self.aanswer(query, filters, **options))

    async def aanswer(self, query: str, filters: Filters = None, **options: Unpack[AnswerOptions]) -> Answer:
        """Answer a question from its passages, with sources that can be checked.

        A language model writes the answer where one is configured; without one it is made of the passages' best
        sentences. Where nothing found bears on the question, the answer says so. What stands in for what fails is in
        ``fallbacks``, and ``error`` says why an answer is not complete.

        Args:
            query: The question.
            filters: What every passage must pass, typed or as JSON.
            options: See :class:`~retrieval_core.pipeline.options.AnswerOptions`.

        Raises:
            InvalidParameterError: An option is outside its range.
            RetrievalError: As :meth:`aretrieve`; and, with ``strict`` or ``raise_on_error``, what
                kept the answer from being complete.
        """
        return await self._work(query, filters, options, raises=True)(_nobody_listens)

    def answer_stream(
        self, query: str, filters: Filters = None, **options: Unpack[AnswerOptions]
    ) -> Generator[AnswerEvent]:
        """Answer a question, and yield what happens as it happens; see :meth:`aanswer_stream`."""
        return in_step(self.sync, self.aanswer_stream(query, filters, **options))

    def aanswer_stream(
        self, query: str, filters: Filters = None, **options: Unpack[AnswerOptions]
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a question, and yield what happens as it happens.

        The last event is ``done`` with the whole answer, whatever happens on the way; an answer that could not be
        completed has ``error`` before it. Leaving the iterator ends the model's work. The arguments are those of
        :meth:`aanswer`.

        Raises:
            RetrievalError: As :meth:`aretrieve`: at once where something is asked wrongly, and with
                the first event where that shows during the search.
        """
        return events_of(self._work(query, filters, options))

    def answer_with_history(
        self, query: str, conversation_history: History, filters: Filters = None, **options: Unpack[AnswerOptions]
    ) -> Generator[AnswerEvent]:
        """Answer a question of a conversation; the same as :meth:`answer_stream` with ``history``."""
        return self.answer_stream(query, filters, **{**options, "history": conversation_history})

    def aanswer_with_history(
        self, query: str, conversation_history: History, filters: Filters = None, **options: Unpack[AnswerOptions]
    ) -> AsyncGenerator[AnswerEvent]:
        """Answer a question of a conversation; the same as :meth:`aanswer_stream` with ``history``."""
        return self.aanswer_stream(query, filters, **{**options, "history": conversation_history})

    def _work(
        self, query: str, filters: Filters, options: AnswerOptions, *, raises: bool = False
    ) -> Callable[[Callable[[AnswerEvent], None]], Awaitable[Answer]]:
        """Return what answers a question and tells its listener, checked as far as that can be done before.

        With ``raises``, what keeps an answer from being complete is raised where it must not be hidden.
        """
        given: dict[str, Any] = dict(options)
        max_tokens, prompt, verify = (given.pop(name, None) for name in ("max_tokens", "prompt_override", "verify"))
        verify = self.config.answer.verify if verify is None else verify
        if type(verify) is not bool:
            msg = f"verify must be true or false, got {verify!r:.80}"
            raise InvalidParameterError(msg)
        if prompt is not None and not (isinstance(prompt, str) and prompt.strip()):
            msg = f"prompt_override must be text that is not blank, got {prompt!r:.80}"
            raise InvalidParameterError(msg)
        given_options = QueryOptions(**given)
        searches = (Search(self._find_evidence(self._retrieval, query, filters, max_tokens, given_options)),)
        if self._by_meaning is not None:
            by_meaning: QueryOptions = {**given_options, "mode": "dense", "transforms": ()}
            find = self._find_evidence(self._by_meaning, query, filters, max_tokens, by_meaning)
            searches += (Search(find, "dense"),)
        question = Question(query, turns(given.get("history")), prompt, verify=verify, strict=self.config.strict)

        async def work(tell: Callable[[AnswerEvent], None]) -> Answer:
            # Making it imports what only answers need.
            answer_writer = self._lazy_answer_writer.made or await asyncio.to_thread(self._lazy_answer_writer.get)
            if verify and answer_writer.verifier is None:
                msg = "verify needs a verifier, and there is none; see answer.verifier, or leave verify out"
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
