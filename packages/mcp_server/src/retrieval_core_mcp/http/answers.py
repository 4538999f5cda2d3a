"""Answers that only the HTTP service has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core.compat.service import ChunkMetadata, CollectionInfo, ExecutionMetadata, ValidationResult
from retrieval_core.types import Degradation, Origin, StageRecord  # noqa: TC001 - pydantic reads annotations


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class ErrorAnswer(_Answer):
    """The errors of a request."""

    status: Literal["error"]
    results: Annotated[tuple[()], Field(json_schema_extra={"type": "array", "maxItems": 0})] = ()
    execution: ExecutionMetadata
    errors: Annotated[tuple[str, ...], Field(min_length=1, description="Messages, most important first")]
    query: Annotated[str | None, Field(description="The query as it was sent; not set if there was none")] = None


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
    rank: Annotated[int | None, Field(ge=1, description="Rank from 1; not set if the query doesn't find the chunk")] = (
        None
    )
    score: Annotated[float | None, Field(description="Score that it is ranked by; not set without a rank")] = None
    scores: Annotated[
        dict[str, float],
        Field(
            description="Scores and ranks of each stage. Without a rank, only those that compare the chunk itself "
            "with the query"
        ),
    ]
    found_by: Annotated[tuple[Origin, ...], Field(description="Searches other than the query's own that found it")] = ()
    index: Annotated[str | None, Field(description="Name of its index, if several were searched")] = None


class FoundChunk(ScoredChunk):
    """A result with its chunk."""

    chunk: dict[str, Any]
    highlights: Annotated[
        tuple[Annotated[tuple[int, ...], Field(min_length=2, max_length=2)], ...],
        Field(description="Start and end of words of the query in its text, in code points"),
    ]
    heading_words: Annotated[
        tuple[str, ...], Field(description="Words of the query in its title and headings, in lower case")
    ]


class RelevanceAnswer(_Answer):
    """Whether chunks answer a query."""

    value: Annotated[
        float | None, Field(ge=0, le=1, description="Probability that the results answer the query; not set if unknown")
    ] = None
    unlikely: Annotated[bool, Field(description="Whether the probability is so low that an answer abstains")]
    unknown: Annotated[
        tuple[str, ...], Field(description="Identifiers, codes and numbers of the query that no chunk contains")
    ] = ()
    other_language: Annotated[bool, Field(description="Whether query and chunks are in different languages")] = False
    note: Annotated[
        str | None,
        Field(description="One sentence; not set if nothing indicates that the results don't answer the query"),
    ] = None
    explanation: str


class ExplainAnswer(_QueryAnswer):
    """The results and stages of a search."""

    results: Annotated[tuple[FoundChunk, ...], Field(description="Results, best first")]
    relevance: Annotated[
        RelevanceAnswer | None, Field(description="Whether the results answer the query; not set if unknown")
    ] = None
    stages: Annotated[tuple[StageRecord, ...], Field(description="Stages, in the order in which they ended")]
    deadline_ms: Annotated[
        float | None,
        Field(description="Deadline of the search, in milliseconds from its start; not set if there is none"),
    ] = None
    expected: Annotated[ScoredChunk | None, Field(description="The expected chunk, if the query finds it")] = None
    why: Annotated[str | None, Field(description="Why the expected chunk is or isn't among the results")] = None
    degraded: Annotated[tuple[Degradation, ...], Field(description="Stages that failed or fell back")]


class ChunkAnswer(_Answer):
    """A chunk as it is stored."""

    text: str
    metadata: ChunkMetadata
    fields: Annotated[dict[str, Any], Field(description="The other fields that filters can name")]


class ValidationAnswer(ValidationResult):
    """Whether a stored chunk equals the text of its document, and whether its file was changed."""

    file_changed: Annotated[
        bool, Field(description="Whether the file was changed after it was indexed; false if there is none")
    ]


class AcceptedFiles(_Answer):
    """Files that can be uploaded."""

    suffixes: Annotated[tuple[str, ...], Field(description="Suffixes of their names, in lower case with the dot")]
    max_bytes: Annotated[int, Field(description="Largest size of a file, in bytes")]


class IndexesAnswer(_Answer):
    """All indexes of the service."""

    indexes: tuple[CollectionInfo, ...]
    writable: Annotated[bool, Field(description="Whether the caller may change the indexes")]
    files: Annotated[
        AcceptedFiles | None, Field(description="Files that can be uploaded; not set if the caller may not write")
    ] = None


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
    documents: Annotated[tuple[str, ...], Field(description="IDs of the documents in the results, best first")]


class SuiteReportAnswer(_Answer):
    """The result of the last run of a test suite."""

    suite: str
    timestamp: Annotated[str, Field(description="When the run began, in UTC")]
    total: Annotated[int, Field(description="Number of cases")]
    passed: int
    skipped: int
    means: Annotated[dict[str, float], Field(description="Means of recall, nDCG and MRR over the cases that have them")]
    criteria: tuple[ReportCriterion, ...]
    not_passed: Annotated[tuple[ReportCase, ...], Field(description="Cases that did not pass, at most 200")]


class Health(_Answer):
    """The state of the process."""

    status: Literal["ok"]


class Readiness(_Answer):
    """Whether every index can be searched."""

    status: Literal["ready", "waiting"]
    waiting: Annotated[
        dict[str, str],
        Field(
            description="Names of errors by index, for the indexes that can't be searched; empty without a valid token"
        ),
    ]
