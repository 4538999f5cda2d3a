"""The ports for models: language models, embedders, token counters, rerankers, relevance filters, pruners and others.

Each call of such a plug-in is one attempt at its provider: the pipeline adds timeouts and retries, so a plug-in
itself never retries.
"""

from __future__ import annotations

import inspect
import logging
from abc import abstractmethod
from collections.abc import AsyncIterable
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, cast

from retrieval_core.errors import (
    DimensionMismatchError,
    EmbeddingError,
    InvalidParameterError,
    UnusableAnswerError,
    as_exception,
)
from retrieval_core.ports.plugin import BatchPlugin, Plugin, are, call_plugin, calls_plugin, default, is_text
from retrieval_core.types import Chunk, EvaluationScores, Evidence, Judgement, Usage
from retrieval_core.types.documents import as_vectors, is_zero

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from retrieval_core.errors import MalformedAnswerError
    from retrieval_core.types import JSON, Matrix, Vector, Verdict

logger = logging.getLogger("retrieval_core")

PROBE_TOKENS = 500
"""Enough for a model that reasons before it answers with one word."""


class Embedder(Plugin):
    """Turns text into vectors of unit length. A subclass has ``id``, ``dimension``, and two methods.

    Attributes:
        dimension: Number of components of each vector.

    Example::

        class MyEmbedder(Embedder):
            id = "letters"
            dimension = 2

            async def _embed_query(self, text):
                return [text.count("a") + 1.0, text.count("b") + 1.0]

            async def _embed_texts(self, texts):
                return [await self._embed_query(text) for text in texts]
    """

    dimension: Any  # int
    port_role = "the embedder"
    port_attributes = ("id", "dimension")
    port_calls = ("embed_query", "embed_texts", "embed_queries")
    port_optional = ("embed_queries", "reopen", "preload", "count_tokens")
    port_advice = "LangChain embeddings: retrieval_core.compat.models.adapt_embedder(embeddings)"

    @calls_plugin
    async def embed_query(self, text: str) -> Vector:
        """Embed one query.

        Returns:
            Shape ``(dimension,)``, float32, L2-normalized.

        Raises:
            EmbeddingError: The text could not be embedded, or the vector can't be searched for.
            DimensionMismatchError: The vector has another dimension.
        """
        return checked_vector(await call_plugin(self._embed_query, text), self.dimension)

    @calls_plugin
    async def embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed chunks.

        Returns:
            Shape ``(len(texts), dimension)``, float32, each row L2-normalized, in the order of the texts.

        Raises:
            EmbeddingError: A text could not be embedded, or there is not one vector for each.
        """
        count = len(texts)
        return self._checked_rows(await call_plugin(self._embed_texts, texts), count)

    @calls_plugin
    async def embed_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed several queries in one call; optional, see :attr:`capabilities`.

        Returns:
            Shape ``(len(texts), dimension)``: for each query the vector of :meth:`embed_query`.

        Raises:
            EmbeddingError: A text could not be embedded, or there is not one vector for each.
        """
        count = len(texts)
        return self._checked_rows(await call_plugin(self._embed_queries, texts), count)

    @default
    async def reopen(self) -> None:
        """Drop the model or the connection after a failure, so that the next call opens it again; optional."""

    @default
    def preload(self) -> None:
        """Start loading the model in threads, and return; optional.

        If loading fails, the first call to embed raises the error.
        """

    @default
    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of a text, without those that the model adds; optional, with ``max_tokens``."""
        msg = f"{self.id} does not count tokens"
        raise NotImplementedError(msg)

    @property
    def max_tokens(self) -> int:
        """Tokens beyond this number are not seen by the model; optional, with :meth:`count_tokens`."""
        msg = f"{self.id} does not count tokens"
        raise NotImplementedError(msg)

    async def probe(self) -> str:
        """Embed one query."""
        vector = await self.embed_query("Does it work?")
        return f"{self.id}, {len(vector)} dimensions"

    @abstractmethod
    async def _embed_query(self, text: str) -> Vector: ...

    @abstractmethod
    async def _embed_texts(self, texts: Sequence[str]) -> Matrix: ...

    @default
    async def _embed_queries(self, texts: Sequence[str]) -> Matrix:
        import numpy as np  # noqa: PLC0415 - it has been loaded by then

        vectors = [await self.embed_query(text) for text in texts]
        return np.stack(vectors) if vectors else np.empty((0, self.dimension), dtype=np.float32)

    def _checked_rows(self, rows: object, count: int) -> Matrix:
        try:
            matrix = as_vectors(rows)
        except InvalidParameterError as error:
            msg = f"{self.id} gave no vectors: {error}"
            raise EmbeddingError(msg) from error
        if matrix.ndim != 2 or len(matrix) != count:
            if not count and not matrix.size:
                return matrix.reshape(0, self.dimension).astype("float32", copy=False)
            msg = f"{self.id} gave vectors of the shape {matrix.shape} for {count} texts"
            raise EmbeddingError(msg)
        return matrix.astype("float32", copy=False)


def checked_vector(vector: object, dimension: int, query: str | None = None) -> Vector:
    """Return what an embedder gave as a float32 vector, if it can be searched for.

    Raises:
        DimensionMismatchError: It has another length.
        EmbeddingError: It is no vector of finite numbers, or all of them are 0.
    """
    try:
        array = as_vectors(vector)
    except InvalidParameterError as error:
        msg = f"the embedder gave no vector: {error}"
        raise EmbeddingError(msg, query) from error
    if array.shape != (dimension,):
        raise DimensionMismatchError(dimension, array.size, "the embedding of the query")
    array = array.astype("float32", copy=False)
    if is_zero(array):
        msg = "the embedder gave a vector of zeros, which is equally far from everything"
        raise EmbeddingError(msg, query)
    return array


class TokenCounter(Plugin):
    """Counts the tokens of a text as some model would. Any function will do."""

    port_role = "the token counter"
    port_calls = ("__call__",)
    port_advice = "give a function that returns the number of tokens of a text"

    def __call__(self, text: str, /) -> int:
        """Return the number of tokens, 0 for empty text.

        Raises:
            InvalidParameterError: The counter returned something else than a number of tokens.
        """
        tokens: object = self._call(text)
        if type(tokens) is not int or tokens < 0:
            msg = f"a token counter must return a whole number of at least 0, and this one returned {tokens!r:.80}"
            raise InvalidParameterError(msg)
        return tokens

    @abstractmethod
    def _call(self, text: str, /) -> int: ...


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

    async def probe(self) -> str:
        """Have one word written: unlike a list of models, it shows that the key may be used for this model."""
        message = Message("user", "Answer with the one word: yes")
        await self.complete(CompletionRequest((message,), max_tokens=PROBE_TOKENS))
        return f"{self.id} answers"

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

    async def probe(self) -> str:
        """Judge one chunk."""
        await self.judge("Does it work?", [Chunk("probe#0", "probe", "It works.")])
        return f"{self.id} judges chunks"

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

    async def probe(self) -> str:
        """Score one chunk."""
        await self.score("Does it work?", ["It works."])
        return f"{self.id} scores chunks"

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


@dataclass(frozen=True, slots=True)
class Kept:
    """Which sentences a pruner keeps.

    Attributes:
        kept: For each passage, for each of its sentences in order, whether it is kept.
        scores: The relevance of each sentence, in the same shape, higher is better, on the pruner's scale; empty if
            there are none. If no sentence of a passage is kept, its best one stays (without scores its first one).
    """

    kept: tuple[tuple[bool, ...], ...]
    scores: tuple[tuple[float, ...], ...] = ()
    usage: Usage | None = None


class Pruner(BatchPlugin):
    """Chooses the sentences of chunks that bear on a query; the others are not shown.

    Its :attr:`batch_size` counts sentences; a chunk that has more comes by itself, whole.
    """

    port_role = "the pruner"
    port_calls = ("keep",)

    @calls_plugin
    async def keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        """Judge the sentences of chunks.

        Args:
            query: The normalized query.
            passages: The sentences of each, in the order of its text; together they are the text, but for white space.

        Raises:
            ServiceError: The model failed, or gave no answer that could be used.
            EmbeddingError: A text could not be embedded.
        """
        sizes = [len(sentences) for sentences in passages]
        answer = self._expect(await call_plugin(self._keep, query, passages), Kept)
        fit = f"the {sizes} sentences of {len(sizes)} passages"
        if not _fits(answer.kept, sizes, bool):
            raise self._refuse(f"what is kept does not fit {fit}: {answer.kept!r:.200}")
        if answer.scores and not _fits(answer.scores, sizes, (int, float)):
            raise self._refuse(f"the scores do not fit {fit}: {answer.scores!r:.200}")
        return answer

    async def probe(self) -> str:
        """Judge two sentences."""
        await self.keep("Does it work?", [["It works.", "It rains."]])
        return f"{self.id} judges sentences"

    @abstractmethod
    async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept: ...


def _fits(answer: object, sizes: Sequence[int], kind: type | tuple[type, ...]) -> bool:
    rows = cast("Sequence[Sequence[Any]]", answer)
    try:
        return [len(row) for row in rows] == list(sizes) and all(
            isinstance(value, kind) and isfinite(value) for row in rows for value in row
        )
    except (OverflowError, TypeError):
        return False


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict on one sentence.

    Attributes:
        passage: Index of the passage that decides, from 0; ``None`` for ``not_found``.
        quote: That passage's own words; empty for ``not_found``.
        reason: One sentence for people; may be empty.
    """

    verdict: Verdict
    passage: int | None = None
    quote: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One verdict for each sentence, in their order."""

    verdicts: tuple[Verified, ...]
    usage: Usage | None = None


class Verifier(BatchPlugin):
    """Verifies the sentences of an answer against chunks. Its :attr:`batch_size` counts sentences."""

    port_role = "the verifier"
    port_calls = ("verify",)

    @calls_plugin
    async def verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
        """Check sentences of an answer against chunks.

        Args:
            query: The question that was answered.
            sentences: At most :attr:`batch_size`, without the marks of their citations.
            passages: At least one; each sentence may rest on any of them.

        Raises:
            ServiceError: The provider failed, or gave no verdict on one of the sentences.
        """
        count, texts = len(sentences), tuple(passages)
        answer = self._expect(await call_plugin(self._verify, query, sentences, passages), Verdicts)
        if not isinstance(answer.verdicts, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(f"its verdicts are {answer.verdicts!r:.80}, and no tuple")
        if not (answer.usage is None or isinstance(answer.usage, Usage)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._refuse(f"its usage is {answer.usage!r:.80}")
        if len(answer.verdicts) != count:
            raise self._refuse(f"it gave {len(answer.verdicts)} verdicts on {count} sentences")
        for verified in answer.verdicts:
            if (problem := _verdict_problem(verified, texts)) is not None:
                raise self._refuse(problem)
        return answer

    @abstractmethod
    async def _verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts: ...


def _verdict_problem(verified: Any, texts: Sequence[str]) -> str | None:
    """Return what is wrong with a verdict: it must name a chunk that contains its quote, or none."""
    if not isinstance(verified, Verified):
        return f"{verified!r:.80} is no verdict"
    verdict, passage, quote = cast("tuple[Any, Any, Any]", (verified.verdict, verified.passage, verified.quote))
    if not isinstance(verdict, str) or verdict not in {"supported", "contradicted", "not_found"}:
        return f"{verified!r:.80} is no verdict"
    if not (isinstance(quote, str) and isinstance(verified.reason, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return f"{verified!r:.200} has a quote or a reason that is no text"
    if verdict == "not_found":
        return None if passage is None else f"{verified!r:.200} names a passage for what no passage tells"
    if type(passage) is not int or not 0 <= passage < len(texts):
        return f"{verified!r:.200} names none of the {len(texts)} passages"
    return None if quote and quote in texts[passage] else f"the passage does not hold {quote!r:.200}"
