"""The ports for language models, relevance filters, rerankers, rewriters and evaluators.

Each call of such a plug-in is one attempt at its provider: the pipeline adds time limit and retries, so a plug-in
itself never retries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from retrieval_core.errors import MalformedAnswerError
    from retrieval_core.types import JSON, Chunk, EvaluationScores, Evidence, Judgement, Usage


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


class LLM(Protocol):
    """A language model."""

    @property
    def id(self) -> str:
        """Names provider, model and settings: two models with the same id answer alike."""
        ...

    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer a request.

        Raises:
            ServiceError: The provider failed, or answered with something that is no answer.
        """
        ...

    def stream(self, request: CompletionRequest) -> AsyncIterator[str]:
        """Answer a request piece by piece; closing the iterator ends the provider's work.

        Raises:
            ServiceError: The provider failed, before the first piece or between two.
        """
        ...


@dataclass(frozen=True, slots=True)
class Judgements:
    """One judgement for each passage, in their order."""

    judgements: tuple[Judgement, ...]
    usage: Usage | None = None


class RelevanceFilter(Protocol):
    """Judges which passages bear on a question; the others are left out."""

    @property
    def id(self) -> str:
        """Names model, prompt and settings: two relevance filters with the same id judge alike."""
        ...

    @property
    def batch_size(self) -> int:
        """The most passages of one call, at least 1."""
        ...

    async def judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
        """Judge passages by themselves, each against the question.

        Args:
            query: The normalised question.
            chunks: At most :attr:`batch_size`.

        Raises:
            ServiceError: The provider failed, or gave no judgement on one of the passages.
        """
        ...


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


class Reranker(Protocol):
    """Scores passages against a question with a model that reads both together."""

    @property
    def id(self) -> str:
        """Names model and settings: two rerankers with the same id score alike."""
        ...

    @property
    def batch_size(self) -> int:
        """The most passages of one call, at least 1."""
        ...

    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages, each by itself, in [0, 1].

        Raises:
            ServiceError: The provider failed.
        """
        ...


@runtime_checkable
class Repairing(Protocol):
    """An optional protocol of rerankers: ask the model to repair a malformed answer."""

    async def repair(self, query: str, passages: Sequence[str], wrong: MalformedAnswerError) -> RerankScores:
        """Score the same passages again, given the last answer and its fault.

        Raises:
            ServiceError: The provider failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A rewritten question, and why it should find more."""

    query: str
    reason: str
    usage: Usage | None = None


class Rewriter(Protocol):
    """Rewrites a question that found too little."""

    @property
    def id(self) -> str:
        """Names model, prompt and settings: two rewriters with the same id rewrite alike."""
        ...

    async def rewrite(self, query: str, context: str) -> Rewritten:
        """Rewrite a question.

        Args:
            query: The normalised question, as the user asked it.
            context: The results so far, formatted; may be empty.

        Raises:
            ServiceError: The provider failed, or gave no question.
        """
        ...


class Evaluator(Protocol):
    """Scores a result without knowing the right answer."""

    @property
    def id(self) -> str:
        """Names method, model and settings."""
        ...

    async def evaluate(self, query: str, chunks: Sequence[Chunk], response: str) -> EvaluationScores:
        """Score a result.

        Args:
            query: The normalised question.
            chunks: The passages, best first.
            response: The answer that was written from them; without one, their text as a prompt gets it.

        Raises:
            ServiceError: A provider failed.
        """
        ...
