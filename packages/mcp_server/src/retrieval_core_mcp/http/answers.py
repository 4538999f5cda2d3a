"""Answers that the specification has no table for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core.compat.service import (
    ChunkMetadata,
    CollectionInfo,
    ExecutionMetadata,
    ValidationResult,
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
    score: float | None = None
    """By which it is ordered; none without a rank."""
    scores: dict[str, float]
    """Scores and ranks of each stage that saw it; ranks count from 1. Without a rank they are only those that compare
    the passage itself with the question."""
    found_by: tuple[Origin, ...] = ()
    """The searches beside the question's own that found it."""
    index: str | None = None
    """Which of several it is from, where several were asked; ids are unique in their index only."""


class FoundChunk(ScoredChunk):
    """A passage that was found, as it is stored."""

    chunk: dict[str, Any]
    highlights: tuple[Annotated[tuple[int, ...], Field(min_length=2, max_length=2)], ...]
    """Where words of the question stand in its text: begin and end, in code points."""


class Relevance(_Answer):
    """Whether chunks answer a query."""

    value: Annotated[float, Field(ge=0, le=1)] | None = None
    """The probability that they do; null if nothing indicates it."""
    unlikely: bool
    """Whether that is so low that an answer abstains."""
    unknown: tuple[str, ...] = ()
    """Identifiers, codes and numbers of the query that no chunk contains; an answer abstains then, too."""
    other_language: bool = False
    """Whether the query is in another language than the chunks, so that there is no probability."""
    note: str | None = None
    """All of that in words; null if nothing speaks against an answer."""
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
    deadline_ms: float | None = None
    """By when all of them have to end, in milliseconds from the beginning; absent where there is no bound."""
    expected: ScoredChunk | None = None
    """The passage that was expected, where the question finds it."""
    why: str | None = None
    """What became of it."""
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


class QuoteAnswer(_Answer):
    """Whether a quote stands in a passage or its document."""

    verdict: Literal["exact", "equivalent", "not_found"]
    """``equivalent`` has the same words in other typography or markup, or with omissions that the quote marks."""
    where: Literal["passage", "document"] | None = None
    """In the passage, or elsewhere in its document; absent if it is not found."""
    text: str | None = None
    """The words as they stand there; of a quote that is not found, the beginning of the passage."""
    offset: int | None = None
    """Where they begin in that text, in code points."""
    file_changed: bool
    """Whether the file of the passage was changed since it was indexed."""


class PageAnswer(_Answer):
    """Where a passage stands on one of its pages. Lengths are points, 72 to an inch."""

    page: Annotated[int, Field(ge=1)]
    pages: Annotated[int, Field(ge=1)]
    """How many the document has."""
    width: float
    height: float
    boxes: tuple[Annotated[tuple[float, ...], Field(min_length=4, max_length=4)], ...]
    """Left, top, right and bottom of each line of the passage, from the upper left corner of the page; none where its
    words are not found there."""


class ListedDocument(_Answer):
    """A document of an index."""

    id: str
    title: str | None = None
    source: str | None = None
    chunks: int | None = None
    """How many passages it has."""


class ValidationAnswer(ValidationResult):
    """Whether a passage is what was read, and whether that is still what its file says."""

    file_changed: bool
    """Whether its file was changed since it was indexed; false where it came from none, or the file is gone."""


class DocumentsAnswer(_Answer):
    """A part of the documents, in the order of their ids."""

    documents: tuple[ListedDocument, ...]
    total: int | None = None
    """How many there are, or have the name that was asked for; of all, a tenant is told no number."""
    next_cursor: str | None = None
    """With which the next part is asked for; none behind the last one."""


class DocumentChunk(_Answer):
    """A passage in its document."""

    id: str
    start: int
    """Where it begins in the text of the whole document, in code points."""
    end: int
    section_path: tuple[str, ...]
    """The headings above it, outermost first."""
    page_span: tuple[int, int] | None = None
    """Its first and last page, from 1."""


class DocumentAnswer(_Answer):
    """A document, or a part of it. Offsets count code points."""

    id: str
    title: str | None = None
    source: str | None = None
    timestamp: str | None = None
    """When it was indexed, in UTC."""
    metadata: dict[str, Any]
    text: str
    """The part that was asked for; empty behind the end."""
    offset: int
    """Where the part begins."""
    length: int
    """Of the text of the whole document."""
    last_page: int | None = None
    """The number of the last page, or slide, that has a passage; absent for documents without pages."""
    chunks: tuple[DocumentChunk, ...]
    """The passages that lie in the part, or reach into it."""


class AcceptedFiles(_Answer):
    """Files that can be sent to be indexed."""

    suffixes: tuple[str, ...]
    """Of their names, in lower case and with their dot."""
    max_bytes: int
    """Of each."""


class IndexesAnswer(_Answer):
    """All indexes of the service."""

    indexes: tuple[CollectionInfo, ...]
    writable: bool
    """Whether the caller may write to them."""
    files: AcceptedFiles | None = None
    """Absent where the caller may not write."""


class IndexField(_Answer):
    """A field that filters can name."""

    name: str
    """Its path; the parts of a nested one are joined by dots."""
    types: tuple[str, ...]
    """Of its values: text, number, boolean, object, or list of one of these."""
    count: int | None = None
    """How many passages have it, where the store can tell."""
    examples: Annotated[tuple[str | float | bool, ...], Field(max_length=10)]
    """Values that occur, the most frequent first."""
    min: float | str | None = None
    """The smallest number, or the first date."""
    max: float | str | None = None


class FieldsAnswer(_Answer):
    """By which fields an index can be filtered. Examples, ranges and times are those of a sample of its passages."""

    fields: tuple[IndexField, ...]
    sampled: int
    """How many passages the sample has."""
    modes: tuple[Literal["hybrid", "dense", "lexical"], ...]
    """How the index can be searched."""
    indexed_first: str | None = None
    """When the oldest passage of the sample was indexed, in UTC."""
    indexed_last: str | None = None


class ReportCriterion(_Answer):
    """Something that a whole suite has to reach."""

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
    documents: tuple[str, ...]
    """Ids of those found, best first."""


class SuiteReportAnswer(_Answer):
    """What became of a test suite when it was last run."""

    suite: str
    timestamp: str
    """When it began, in UTC."""
    total: int
    """Cases that were run."""
    passed: int
    skipped: int
    means: dict[str, float]
    """Over the cases that have it, of ``recall@5``, ``recall@k``, ``ndcg@10`` and ``mrr``."""
    criteria: tuple[ReportCriterion, ...]
    not_passed: tuple[ReportCase, ...]
    """At most 200 of them."""


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
