"""Answering questions, for everything that finds passages for them."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.answer.asked import Question
from retrieval_core.pipeline.lifecycle import Lifecycle
from retrieval_core.pipeline.options import QueryOptions, turns
from retrieval_core.pipeline.search_loop import raise_what_must_not_be_hidden
from retrieval_core.run.events import events_of, in_step
from retrieval_core.run.lazy import Lazy
from retrieval_core.types import RetrievalResult

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence

    from retrieval_core.config import AnswerConfig
    from retrieval_core.pipeline.answer.answer_writer import AnswerWriter
    from retrieval_core.pipeline.answer.asked import AnswerOutcome, Search
    from retrieval_core.ports import Message
    from retrieval_core.types import Answer, AnswerEvent
    from retrieval_core.types.filters import Filter, MetadataFilter

    Filters = Filter | MetadataFilter | Mapping[str, Any] | None
    History = Sequence[Message | Mapping[str, Any]]


class AnswerOptions(QueryOptions, total=False):
    """The options of any query, and those of an answer; ``None``, or left out, means what is configured."""

    max_tokens: int | None
    """The budget of the passages that the answer is written from, at least 1."""
    verify: bool | None
    """Whether each sentence of a written answer is held against the passages."""
    prompt_override: str | None
    """Instructions to the language model in place of the configured ones."""


class Answers(Lifecycle):
    """Answers questions from what is found for them.

    Each method exists twice: as it is, and with an ``a`` before its name as a coroutine function or an asynchronous
    iterator.
    """

    _lazy_answer_writer: Lazy[AnswerWriter]

    def _answering_with(self, answer_writer: AnswerWriter | Lazy[AnswerWriter] | None) -> Lazy[AnswerWriter]:
        """Return what answers, made when the first question is to be answered: most are only searched for."""
        if isinstance(answer_writer, Lazy):
            return answer_writer
        held = Lazy(lambda: answer_writer or _default_answer_writer(self.config.answer))
        if answer_writer is not None:
            held.get()  # and so closed, used or not
        return held

    @abstractmethod
    def _searches(
        self, query: str, filters: Filters, max_tokens: int | None, options: QueryOptions
    ) -> tuple[Search, ...]:
        """Return the ways to find what answers a question, each of which stands in for those before it.

        Raises:
            RetrievalError: Something is asked wrongly; nothing is done before that is known.
        """

    @property
    @abstractmethod
    def _embedder_id(self) -> str | None:
        """Names what the cosines of hits are from, where that is one embedder."""

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
            options: See :class:`AnswerOptions`.

        Raises:
            InvalidParameterError: An option is outside its range.
            RetrievalError: As :meth:`RetrievalPipeline.aretrieve`; and, with ``strict`` or ``raise_on_error``, what
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
        completed has ``error`` before it. Leaving the iterator ends the model's work.

        Args:
            query: The question.
            filters: What every passage must pass, typed or as JSON.
            options: See :class:`AnswerOptions`.

        Raises:
            RetrievalError: As :meth:`RetrievalPipeline.aretrieve`: at once where something is asked wrongly, and with
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

        Args:
            query: The question.
            filters: What every passage must pass.
            options: The caller's.
            raises: Whether what keeps an answer from being complete is raised, where it must not be hidden.
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
        searches = self._searches(query, filters, max_tokens, QueryOptions(**given))
        question = Question(query, turns(given.get("history")), prompt, verify=verify, strict=self.config.strict)

        async def work(tell: Callable[[AnswerEvent], None]) -> Answer:
            # Making it imports what only answers need.
            answer_writer = self._lazy_answer_writer.made or await asyncio.to_thread(self._lazy_answer_writer.get)
            if verify and answer_writer.verifier is None:
                msg = "verify needs a verifier, and there is none; see answer.verifier, or leave verify out"
                raise InvalidParameterError(msg)
            with self._watched():
                answer = partial(answer_writer.answer, self._run(), question, searches, tell)
                outcome = await answer(embedder_id=self._embedder_id)
                if raises and outcome.failed is not None:
                    strict = self.config.strict or self.config.raise_on_error
                    raise_what_must_not_be_hidden((outcome.failed,), strict=strict)
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
