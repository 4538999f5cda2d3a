"""Answers of the HTTP service that neither the specification nor the service functions have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core.compat.service import ChunkMetadata, CollectionInfo, ExecutionMetadata, ValidationResult
from retrieval_core.types import Degradation, Origin, StageRecord  # noqa: TC001 - pydantic reads annotations


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ErrorAnswer(_Answer):
    """Why a request has no answer."""

    status: Literal["error"]
    results: Annotated[tuple[()], Field(json_schema_extra={"type": "array", "maxItems": 0})] = ()
    execution: ExecutionMetadata
    errors: Annotated[tuple[str, ...], Field(min_length=1, description="Messages, the most important first")]
    query: Annotated[str | None, Field(description="The query as it arrived, if one did")] = None


class _QueryAnswer(_Answer):
    query: str
    status: Literal["success"]
    execution: ExecutionMetadata
    errors: tuple[str, ...] = ()


class ContextAnswer(_QueryAnswer):
    """The results of a query, packed for a language model."""

    model_config = ConfigDict(frozen=True, extra="allow")

    context_pack: Annotated[str, Field(description="The chunks as one text, with numbers to cite them by")]
    token_count: int
    max_tokens: int
    citations: tuple[str, ...]


class ScoredChunk(_Answer):
    """A chunk with the scores of each stage."""

    id: str
    rank: Annotated[int | None, Field(ge=1, description="None if it is not among the results, however many")] = None
    score: Annotated[float | None, Field(description="The score that it is ranked by; none without a rank")] = None
    scores: Annotated[
        dict[str, float],
        Field(
            description="Scores and ranks of each stage. Without a rank, only those that compare the chunk itself "
            "with the query"
        ),
    ]
    found_by: Annotated[tuple[Origin, ...], Field(description="Searches other than the query's that found it")] = ()
    index: Annotated[str | None, Field(description="Its index, if several were searched")] = None


class FoundChunk(ScoredChunk):
    """A result, as it is stored."""

    chunk: dict[str, Any]
    highlights: Annotated[
        tuple[Annotated[tuple[int, ...], Field(min_length=2, max_length=2)], ...],
        Field(description="Start and end of words of the query in its text, in code points"),
    ]


class Relevance(_Answer):
    """Whether chunks answer a query."""

    value: Annotated[float | None, Field(ge=0, le=1, description="The probability; null if unknown")] = None
    unlikely: Annotated[bool, Field(description="Whether that is so low that an answer abstains")]
    unknown: Annotated[
        tuple[str, ...], Field(description="Identifiers, codes and numbers of the query that no chunk contains")
    ] = ()
    other_language: Annotated[bool, Field(description="Whether query and chunks are in different languages")] = False
    note: Annotated[str | None, Field(description="In words; null if nothing speaks against an answer")] = None
    explanation: str


class ExplainAnswer(_QueryAnswer):
    """What a search did."""

    results: Annotated[tuple[FoundChunk, ...], Field(description="In the order of the index")]
    relevance: Annotated[Relevance | None, Field(description="Absent if nothing indicates it")] = None
    stages: Annotated[tuple[StageRecord, ...], Field(description="In the order in which they ended")]
    deadline_ms: Annotated[float | None, Field(description="When all stages have to end, in ms from the start")] = None
    expected: Annotated[ScoredChunk | None, Field(description="The expected chunk, if the query finds it")] = None
    why: Annotated[str | None, Field(description="Why it is there or not")] = None
    degraded: Annotated[tuple[Degradation, ...], Field(description="Stages that failed or fell back")]


class ChunkAnswer(_Answer):
    """A chunk as it is stored."""

    text: str
    metadata: ChunkMetadata
    fields: Annotated[dict[str, Any], Field(description="All else that is known of it")]


class ValidationAnswer(ValidationResult):
    """Whether a chunk is what was read, and whether its file still has it."""

    file_changed: Annotated[
        bool, Field(description="Whether its file was changed after it was indexed; false if it has none any more")
    ]


class AcceptedFiles(_Answer):
    """Files that can be sent to be indexed."""

    suffixes: Annotated[tuple[str, ...], Field(description="Endings of their names, in lower case with the dot")]
    max_bytes: Annotated[int, Field(description="Largest size of each")]


class IndexesAnswer(_Answer):
    """All indexes of the service."""

    indexes: tuple[CollectionInfo, ...]
    writable: Annotated[bool, Field(description="Whether the caller may change them")]
    files: Annotated[AcceptedFiles | None, Field(description="Absent if the caller may not")] = None


class ReportCriterion(_Answer):
    """A criterion for a whole suite."""

    code: str
    text: str
    verdict: Literal["met", "missed", "not measured"]
    value: float | None = None
    target: float | None = None


class ReportCase(_Answer):
    """A case of a suite that did not pass."""

    name: str
    query: str
    problems: tuple[str, ...]
    documents: Annotated[tuple[str, ...], Field(description="IDs of the documents that were found, best first")]


class SuiteReportAnswer(_Answer):
    """The result of the last run of a test suite."""

    suite: str
    timestamp: Annotated[str, Field(description="When it began, in UTC")]
    total: Annotated[int, Field(description="Cases that were run")]
    passed: int
    skipped: int
    means: Annotated[dict[str, float], Field(description="Over the cases that have it: recall, nDCG and MRR")]
    criteria: tuple[ReportCriterion, ...]
    not_passed: Annotated[tuple[ReportCase, ...], Field(description="At most 200")]


class Health(_Answer):
    """The process lives."""

    status: Literal["ok"]


class Readiness(_Answer):
    """Whether every index can be searched."""

    status: Literal["ready", "waiting"]
    waiting: Annotated[dict[str, str], Field(description="Errors by the name of their index")]
