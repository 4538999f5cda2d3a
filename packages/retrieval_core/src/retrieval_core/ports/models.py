"""The ports for language models, relevance filters, rerankers, rewriters and evaluators.

Each call of such a plug-in is one attempt at its provider: the pipeline adds time limit and retries, so a plug-in
itself never retries.
"""

from __future__ import annotations

import inspect
import logging
from abc import abstractmethod
from collections.abc import AsyncIterable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Literal, cast

from retrieval_core.errors import UnusableAnswerError, as_exception
from retrieval_core.ports.plugin import BatchPlugin, Plugin, are, call_plugin, calls_plugin, default, is_text
from retrieval_core.types import EvaluationScores, Evidence, Judgement

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from retrieval_core.errors import MalformedAnswerError
    from retrieval_core.types import JSON, Chunk, Usage


logger = logging.getLogger("retrieval_core")


@dataclass(frozen=True, slots=True)
class Message:
    """One message to a language model."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request to a language model.

    Attributes:
        schema: JSON schema of the object that the answer must be; ``None`` for free text. It requires all properties
            and allows no others, as providers' strict modes want it.
        max_tokens: The longest answer in the model's tokens; ``None`` leaves it to the provider.
        temperature: 0 for the likeliest answer.
    """

    messages: tuple[Message, ...]
    schema: Mapping[str, JSON] | None = None
    max_tokens: int | None = None
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """A language model's answer; where a schema was given, ``text`` is a JSON object that fits it."""

    text: str
    usage: Usage | None = None


class LLM(Plugin):
    """A language model."""

    port_role = "the language model"
    port_attributes = ("id",)
    port_calls = ("complete", "stream")
    port_advice = "LangChain chat model: retrieval_core.compat.models.adapt_llm(chat_model)"

    @calls_plugin
    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer a request.

        Raises:
            ServiceError: The provider failed, or answered with something that is no answer.
        """
        answer = self._expect(await call_plugin(self._complete, request), Completion)
        if not isinstance(answer.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(f"it gave {answer.text!r:.80}, which is no text")
        return answer

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[str]:
        """Answer a request piece by piece; closing the iterator ends the provider's work.

        Raises:
            ServiceError: The provider failed, before the first piece or between two.
        """
        pieces: object = self._stream(request)
        try:
            async for piece in cast("AsyncIterable[object]", self._expect(pieces, AsyncIterable)):
                yield self._expect(piece, str)
        finally:
            await _close(pieces)

    @abstractmethod
    async def _complete(self, request: CompletionRequest) -> Completion: ...

    async def _stream(self, request: CompletionRequest) -> AsyncIterator[str]:
        """Yield the pieces of an answer. By default, the whole answer is one piece."""
        yield (await self.complete(request)).text


async def _close(pieces: object) -> None:
    """End a stream, if it can be ended; if that fails, the answer is complete all the same."""
    if (close := getattr(pieces, "aclose", None)) is None:
        return
    try:
        if inspect.isawaitable(closing := close()):
            await closing
    except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
        logger.warning("the stream of an answer could not be closed: %s", as_exception(error))


@dataclass(frozen=True, slots=True)
class Judgements:
    """One judgement for each passage, in their order."""

    judgements: tuple[Judgement, ...]
    usage: Usage | None = None


class RelevanceFilter(BatchPlugin):
    """Judges which chunks bear on a query; the others are dropped."""

    port_role = "the relevance filter"
    port_calls = ("judge",)

    @calls_plugin
    async def judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
        """Judge chunks, each by itself.

        Args:
            query: The normalized query.
            chunks: At most :attr:`batch_size`.

        Raises:
            ServiceError: The provider failed, or did not judge each of the chunks.
        """
        count = len(chunks)
        answer = self._expect(await call_plugin(self._judge, query, chunks), Judgements)
        if not are(answer.judgements, _is_judgement):
            raise self._refuse(f"it gave {answer!r:.80}, which are no Judgements")
        if len(answer.judgements) != count:
            raise self._refuse(f"it gave {len(answer.judgements)} judgements for {count} passages")
        if unsound := [item.score for item in answer.judgements if not 0 <= item.score <= 1]:
            raise self._refuse(f"it gave the score {unsound[0]!r:.40}, which is not between 0 and 1")
        return answer

    @abstractmethod
    async def _judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements: ...


@dataclass(frozen=True, slots=True)
class RerankScores:
    """One score for each passage, in their order; higher is better.

    Attributes:
        evidence: The evidence in each passage, in the same order; empty if the model returns only scores.
        problems: Descriptions of faults in the model's answer that were repaired.
    """

    scores: tuple[float, ...]
    usage: Usage | None = None
    evidence: tuple[Evidence | None, ...] = ()
    problems: tuple[str, ...] = ()


class Reranker(BatchPlugin):
    """Scores chunks for a query with a model that reads both together.

    Example::

        class MyReranker(Reranker):
            id = "longest-first"
            batch_size = 100

            async def _score(self, query, passages):
                return RerankScores(tuple(min(1.0, len(passage) / 1000) for passage in passages))
    """

    port_role = "the reranker"
    port_attributes = ("id", "batch_size")
    port_calls = ("score", "repair")
    port_optional = ("repair",)

    @calls_plugin
    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score texts, each by itself, in [0, 1].

        Raises:
            ServiceError: The provider failed, or did not score each of the texts.
        """
        count = len(passages)
        return self._checked_scores(await call_plugin(self._score, query, passages), count)

    @calls_plugin
    async def repair(self, query: str, passages: Sequence[str], wrong: MalformedAnswerError) -> RerankScores:
        """Score the same texts again, given the last answer and its fault; optional.

        Raises:
            ServiceError: The provider failed.
        """
        count = len(passages)
        return self._checked_scores(await call_plugin(self._repair, query, passages, wrong), count)

    @abstractmethod
    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores: ...

    @default
    async def _repair(self, query: str, passages: Sequence[str], wrong: MalformedAnswerError) -> RerankScores:  # noqa: ARG002
        raise wrong

    def _refuse(self, problem: str) -> UnusableAnswerError:  # there may be several
        return UnusableAnswerError(f"the answer of {self.id} cannot be used: {problem}")

    def _checked_scores(self, answer: object, count: int) -> RerankScores:
        answer = self._expect(answer, RerankScores)
        if not are(answer.scores, _is_score):
            raise self._refuse("its scores are no tuple of numbers from 0 to 1")
        if len(answer.scores) != count:
            raise self._refuse(f"it gave {len(answer.scores)} scores for {count} passages")
        if not are(answer.evidence, lambda item: item is None or isinstance(item, Evidence)):
            raise self._refuse("its evidence is no tuple of Evidence")
        if len(answer.evidence) not in {0, count}:
            raise self._refuse(f"it gave evidence on {len(answer.evidence)} of {count} passages")
        if not are(answer.problems, lambda item: isinstance(item, str)):
            raise self._refuse("its problems are no tuple of texts")
        return answer


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A rewritten question, and why it should find more."""

    query: str
    reason: str
    usage: Usage | None = None


class Rewriter(Plugin):
    """Rewrites a query that found too little."""

    port_role = "the rewriter"
    port_calls = ("rewrite",)

    @calls_plugin
    async def rewrite(self, query: str, context: str) -> Rewritten:
        """Rewrite a query.

        Args:
            query: The normalized query, as the user asked it.
            context: The results so far, formatted; may be empty.

        Raises:
            ServiceError: The provider failed, or gave no query.
        """
        answer = self._expect(await call_plugin(self._rewrite, query, context), Rewritten)
        if not isinstance(answer.query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(f"it gave {answer!r:.80}, which is no Rewritten")
        if not is_text(answer.query):
            raise self._refuse("it gave an empty question")
        return answer

    @abstractmethod
    async def _rewrite(self, query: str, context: str) -> Rewritten: ...


class Evaluator(Plugin):
    """Scores a result without knowing the right answer."""

    port_role = "the evaluator"
    port_calls = ("evaluate",)

    @calls_plugin
    async def evaluate(self, query: str, chunks: Sequence[Chunk], response: str) -> EvaluationScores:
        """Score a result.

        Args:
            query: The normalized query.
            chunks: The chunks, best first.
            response: The answer that was written from them; without one, their text as a prompt gets it.

        Raises:
            ServiceError: A provider failed.
        """
        answer = self._expect(await call_plugin(self._evaluate, query, chunks, response), EvaluationScores)
        scores = (answer.context_precision, answer.response_relevancy)
        if not all(score is None or 0 <= score <= 1 for score in scores):
            raise self._refuse(f"{answer!r:.120}")
        return answer

    @abstractmethod
    async def _evaluate(self, query: str, chunks: Sequence[Chunk], response: str) -> EvaluationScores: ...


def _is_judgement(item: object) -> bool:
    score: object = item.score if isinstance(item, Judgement) else None
    return isinstance(score, (int, float))


def _is_score(score: object) -> bool:
    return type(score) is not bool and isinstance(score, Real) and 0 <= cast("float", score) <= 1
