"""Answers that the specification has no table for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core.compat.service import (  # noqa: TC001 - pydantic reads them
    ChunkMetadata,
    CollectionInfo,
    ExecutionMetadata,
)
from retrieval_core.types import Degradation, Origin, StageRecord  # noqa: TC001 - as above


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ErrorAnswer(_Answer):
    """Why a request has no answer."""

    status: Literal["error"]
    results: Annotated[tuple[()], Field(json_schema_extra={"type": "array", "maxItems": 0})] = ()
    execution: ExecutionMetadata
    errors: Annotated[tuple[str, ...], Field(min_length=1)]
    """For people, the first one first."""
    query: str | None = None
    """The question as it came, where one arrived."""


class ContextAnswer(_Answer):
    """What a language model should be shown to answer a question."""

    model_config = ConfigDict(frozen=True, extra="allow")

    query: str
    status: Literal["success"]
    context_pack: str
    """The passages as one text, with numbers to cite them by."""
    token_count: int
    max_tokens: int
    citations: tuple[str, ...]
    execution: ExecutionMetadata
    errors: tuple[str, ...] = ()


class ScoredChunk(_Answer):
    """A passage with what each stage gave it."""

    id: str
    rank: Annotated[int, Field(ge=1)] | None = None
    """Its place in the order of the index; none where it is not among the results, however many are asked for."""
    score: float
    """By which it is ordered."""
    scores: dict[str, float]
    """Scores and ranks of each stage that saw it; ranks count from 1."""
    found_by: tuple[Origin, ...] = ()
    """The searches beside the question's own that found it."""


class FoundChunk(ScoredChunk):
    """A passage that was found, as it is stored."""

    chunk: dict[str, Any]
    highlights: tuple[tuple[int, int], ...]
    """Where words of the question stand in its text: begin and end, in code points."""


class Relevance(_Answer):
    """How likely passages are on the subject of a question."""

    value: Annotated[float, Field(ge=0, le=1)]
    unlikely: bool
    """Whether an answer would be refused."""
    explanation: str


class ExplainAnswer(_Answer):
    """What was done for a question, and what came of it."""

    query: str
    status: Literal["success"]
    results: tuple[FoundChunk, ...]
    """In the order of the index itself."""
    relevance: Relevance | None = None
    """Absent where nothing tells."""
    stages: tuple[StageRecord, ...]
    """In the order in which they ended."""
    expected: ScoredChunk | None = None
    """The passage that was expected, where the question finds it."""
    why: str | None = None
    """What became of it."""
    from_cache: bool
    degraded: tuple[Degradation, ...]
    """What was done without."""
    execution: ExecutionMetadata
    errors: tuple[str, ...] = ()


class ChunkAnswer(_Answer):
    """A passage as it is stored."""

    text: str
    metadata: ChunkMetadata
    fields: dict[str, Any]
    """All else that is known of it."""


class IndexesAnswer(_Answer):
    """All indexes of the service."""

    indexes: tuple[CollectionInfo, ...]


class WrittenAnswer(_Answer):
    """Documents that were written."""

    written: tuple[str, ...]
    """Their ids."""


class RemovedAnswer(_Answer):
    """Documents that were removed."""

    removed_chunks: dict[str, int]
    """How many passages of each went, by its id; 0 where there was none."""


class Health(_Answer):
    """The process lives."""

    status: Literal["ok"]


class Readiness(_Answer):
    """Whether every index can be searched."""

    status: Literal["ready", "waiting"]
    waiting: dict[str, str]
    """By the name of an index, the error that keeps it from being searched."""
