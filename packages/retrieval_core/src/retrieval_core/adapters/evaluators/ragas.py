"""The evaluator that has RAGAS compute both scores, with this library's own language model and embedder."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from retrieval_core.adapters.evaluators.local import average_precision
from retrieval_core.errors import ConfigurationError, MissingExtraError, checked_count
from retrieval_core.installation import install_command
from retrieval_core.ports import LLM, CompletionRequest, Embedder, Evaluator, Message, as_plugin
from retrieval_core.run.caching import Lazy
from retrieval_core.text.prompting import object_schema, parse_answer, shorten
from retrieval_core.types import EvaluationScores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Chunk

A = TypeVar("A", bound=BaseModel)

_PASSAGE_CHARACTERS = 6000
_RESPONSE_CHARACTERS = 12_000
# RAGAS' own temperature where it asks for several answers to one prompt; at 0 they would all be the same.
_QUESTION_TEMPERATURE = 0.3


class RagasEvaluator(Evaluator):
    """Scores a result with RAGAS; an :class:`~retrieval_core.ports.Evaluator`.

    ``context_precision`` is ``ContextPrecisionWithoutReference``: the model says of each passage whether it was useful
    in arriving at the response, and the score is the average precision of these verdicts. ``response_relevancy`` is
    ``AnswerRelevancy``: the model makes up questions that the response would answer, and the score is the mean cosine
    of the real question and those, or 0 where every one of them found the response evasive.

    Prompts and rules are RAGAS' own. Passages are judged one by one, as RAGAS does, but several at a time. A passage is
    cut after 6000 code points, a response after 12,000. RAGAS' prompts hold these texts as JSON behind its
    instructions, so a passage that gives orders may change its own score, and nothing else.

    Scoring takes one request for each passage and each made-up question, without retries. RAGAS takes seconds to
    import, in a thread, with the first result that is scored; its version is read from disk where the evaluator is
    made. Its reports of usage are switched off by its own variable, ``RAGAS_DO_NOT_TRACK``, unless that is set or the
    program has imported RAGAS before.

    Args:
        llm: Judges and makes up questions; stays the caller's to close.
        embedder: Compares the questions; stays the caller's to close.
        questions: How many are made up, at least 1; RAGAS' ``strictness``, and its default.
        concurrency: The most requests at a time, at least 1.

    Raises:
        MissingExtraError: RAGAS is not installed.
        InvalidParameterError: A number is less than 1.
    """

    def __init__(self, llm: LLM, embedder: Embedder, *, questions: int = 3, concurrency: int = 4) -> None:
        self._questions = checked_count(questions, "questions")
        self._concurrency = checked_count(concurrency, "concurrency")
        try:
            self._version = metadata.version("ragas")
        except metadata.PackageNotFoundError as error:
            raise MissingExtraError("ragas", "RagasEvaluator") from error
        self._llm = as_plugin(llm, LLM, "llm")
        self._embedder = as_plugin(embedder, Embedder)
        self._ragas = Lazy(_load)

    @property
    def id(self) -> str:
        """Names RAGAS' version, the model, the embedder and the number of questions."""
        return f"ragas-{self._version} {self._llm.id} {self._embedder.id} {self._questions}"

    async def probe(self) -> str:
        """Import RAGAS, which is what goes wrong; the model is not asked.

        Raises:
            ConfigurationError: RAGAS is installed and cannot be imported.
        """
        await asyncio.to_thread(self._ragas.get)
        return f"RAGAS works: {self.id}"

    async def _evaluate(self, query: str, chunks: Sequence[Chunk], response: str) -> EvaluationScores:
        """Compute both scores; neither exists without a response, the first not without passages.

        Args:
            chunks: The passages, best first.
            response: The answer written from them. Where it is the passages themselves, each of them was useful for
                it, and ``context_precision`` is of little worth; ``methods`` says so.

        Raises:
            ConfigurationError: RAGAS is installed and cannot be imported.
            MalformedAnswerError: The model answered with something else than what was asked for.
            ServiceError: A provider failed.
            EmbeddingError: A question could not be embedded.
        """
        answer = shorten(response.strip(), _RESPONSE_CHARACTERS)
        if not answer:
            reason = "not computed: no response"
            return EvaluationScores(methods={"context_precision": reason, "response_relevancy": reason})
        ragas = await asyncio.to_thread(self._ragas.get)
        turn = asyncio.Semaphore(self._concurrency)
        judge = ragas.context_precision(llm=_PortLLM(self._llm, turn, 0.0))
        asker = ragas.answer_relevancy(
            llm=_PortLLM(self._llm, turn, _QUESTION_TEMPERATURE),
            embeddings=_PortEmbedder(self._embedder),
            strictness=self._questions,
        )

        async def verdict(chunk: Chunk) -> bool:
            passage = shorten(chunk.indexed_text, _PASSAGE_CHARACTERS)
            scored = await judge.ascore(user_input=query, response=answer, retrieved_contexts=[passage])
            return scored.value > 0.5  # of one passage: 1, less RAGAS' guard against dividing by 0, or 0

        try:
            async with asyncio.TaskGroup() as group:
                relevancy = group.create_task(asker.ascore(user_input=query, response=answer))
                verdicts = [group.create_task(verdict(chunk)) for chunk in chunks]
        except ExceptionGroup as errors:
            first = errors.exceptions[0]
            raise first from first.__cause__
        return EvaluationScores(
            context_precision=average_precision([task.result() for task in verdicts]) if chunks else None,
            response_relevancy=_in_range(float(relevancy.result().value)),
            methods=self._methods(chunks, response),
        )

    def _methods(self, chunks: Sequence[Chunk], response: str) -> dict[str, str]:
        name = f"ragas {self._version}"
        precision = f"{name}: ContextPrecisionWithoutReference, by {self._llm.id}"
        if not chunks:
            precision = "not computed: there are no passages"
        elif chunks[0].text.strip() in response:
            precision += "; the response quotes the passages, which flatters the score"
        return {
            "context_precision": precision,
            "response_relevancy": f"{name}: AnswerRelevancy, by {self._llm.id} and {self._embedder.id}",
        }


@dataclass(frozen=True, slots=True)
class _Ragas:
    context_precision: Any
    answer_relevancy: Any


def _load() -> _Ragas:
    if "ragas" not in sys.modules:
        os.environ.setdefault("RAGAS_DO_NOT_TRACK", "true")
    # Not import statements, as the types of RAGAS are not complete enough to be checked.
    try:
        metrics: Any = import_module("ragas.metrics.collections")
        llms: Any = import_module("ragas.llms.base")
        embeddings: Any = import_module("ragas.embeddings.base")
        found = _Ragas(metrics.ContextPrecisionWithoutReference, metrics.AnswerRelevancy)
        # RAGAS takes instances of its two base classes, which are abstract: so what has their methods may join them.
        llms.InstructorBaseRagasLLM.register(_PortLLM)
        embeddings.BaseRagasEmbedding.register(_PortEmbedder)
    except (ImportError, AttributeError) as error:
        if find_spec("ragas") is None:
            raise MissingExtraError("ragas", "RagasEvaluator") from error
        msg = (
            f"ragas is installed and cannot be used ({error}). "
            f"Install the versions that fit together: {install_command('ragas')}"
        )
        raise ConfigurationError(msg) from error
    return found


class _PortLLM:
    """An LLM port in the form of RAGAS' language models."""

    def __init__(self, llm: LLM, turn: asyncio.Semaphore, temperature: float) -> None:
        self._llm = llm
        self._turn = turn
        self._temperature = temperature

    async def agenerate(self, prompt: str, response_model: type[A]) -> A:
        """Answer RAGAS' prompt with an instance of its model, in one attempt."""
        schema = object_schema(response_model.model_json_schema()["properties"])
        request = CompletionRequest((Message("user", prompt),), schema=schema, temperature=self._temperature)
        async with self._turn:
            completion = await self._llm.complete(request)
        return parse_answer(completion.text, response_model, self._llm.id, strict=False)  # as RAGAS itself does


class _PortEmbedder:
    """An embedder port in the form of RAGAS' embedders; it compares questions, so all texts are embedded alike."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    async def aembed_text(self, text: str) -> list[float]:
        """Embed one question."""
        return (await self.aembed_texts([text]))[0]

    async def aembed_texts(self, texts: list[str]) -> list[list[float]]:
        """Embed questions."""
        return (await self._embedder.embed_texts(texts)).tolist()


def _in_range(score: float) -> float | None:
    """Return a mean of cosines as a score; ``None`` for vectors that have no direction."""
    return min(max(score, 0.0), 1.0) if isfinite(score) else None
