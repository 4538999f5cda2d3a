"""Settings that bound what a call may take, and how much there may be of something."""

from __future__ import annotations

from pydantic import Field

from retrieval_core.config.backends import Settings


class TimeoutsConfig(Settings):
    """The longest time of one call to a backend in seconds, with all its attempts; a query's deadline holds as well."""

    embedding: float | None = Field(default=None, gt=0, le=86_400)
    """Embedding a question; no bound but the deadline where it is not set, here and below."""
    retrieval: float | None = Field(default=None, gt=0, le=86_400)
    """Searching one side, and reading the passages that were found: each of these calls."""
    reranking: float | None = Field(default=None, gt=0, le=86_400)
    """Scoring the passages of one request."""
    synthesis: float | None = Field(default=None, gt=0, le=86_400)
    """Writing an answer, from the request to its last word."""


class LimitsConfig(Settings):
    """What other settings, and callers, may not exceed."""

    max_results: int = Field(default=1000, ge=1, le=1000)
    """The most that ``top_k`` may be, of the configuration or of a call."""
    max_chunk_tokens: int = Field(default=8192, ge=16, le=8192)
    """The most that ``chunking.max_tokens`` may be."""
