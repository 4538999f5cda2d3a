"""A result as the specification's response: what goes over a wire, with a schema."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from retrieval_core.types import RetrievalResult


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class DocumentScore(_Model):
    """A passage with its similarity to the question."""

    content: str
    metadata: dict[str, Any]
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    """The dense cosine; ``None`` for a passage that was found by its words and has no vector."""


class RetrievalMetadata(_Model):
    """How the passages were found."""

    query_normalized: str
    query_truncated: bool = False
    filters_applied: dict[str, Any] = {}
    documents_fetched: int = Field(ge=0)
    documents_after_compression: int = Field(ge=0)
    query_rewritten: bool = False
    rewrite_attempts: int = Field(default=0, ge=0)
    cache_hit: bool = False
    note: str | None = None
    """Why nothing was found, where that is known."""
    error: str | None = None
    """What failed, where the search did: then that nothing was found says nothing of the documents."""


class EvaluationScores(_Model):
    """How good the result is; ``None`` where a score cannot be computed."""

    context_precision: float | None = None
    response_relevancy: float | None = None


class RetrievalResponse(_Model):
    """A complete answer to one query."""

    query: str
    documents: list[DocumentScore]
    formatted_context: str
    metadata: RetrievalMetadata
    evaluation: EvaluationScores | None = None
    latency_ms: float = Field(ge=0)
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))
    """When the response was made, in UTC."""

    @classmethod
    def from_result(cls, result: RetrievalResult) -> RetrievalResponse:
        """Return a result of the pipeline as a response."""
        facts = {name: result.metadata[name] for name in RetrievalMetadata.model_fields if name in result.metadata}
        scores = result.evaluation_scores
        return cls(
            query=result.query,
            documents=[
                DocumentScore(content=hit.chunk.text, metadata=dict(hit.chunk.metadata), score=hit.scores.dense)
                for hit in result.hits
            ],
            formatted_context=result.formatted_context,
            metadata=RetrievalMetadata.model_validate({**facts, "cache_hit": result.from_cache}),
            evaluation=None if scores is None else EvaluationScores.model_validate(scores),
            latency_ms=result.latency_ms,
        )
