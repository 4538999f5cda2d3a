"""The service file's names: requests and responses of a search over HTTP, and the description of an index.

::

    from retrieval_core.compat.service import SearchQuery

    query = SearchQuery.model_validate_json('{"query_text": "How do I set up a vector database?", "top_k": 10}')

Each class is one table of the file. It is frozen, with types as strict as in JSON: ``"5"`` and ``true`` are no numbers,
``5.0`` is 5. Fields beyond the file are optional, and absent from the JSON by default, so that clients of the file
never see them. Requests refuse unknown fields. Responses ignore them, since later versions of the service may add some.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    StrictBool,
    StrictStr,
    ValidationError,
    model_serializer,
    model_validator,
)

from retrieval_core.config.model import named_mode
from retrieval_core.ports import Message  # noqa: TC001 - pydantic reads annotations
from retrieval_core.service.searching import FurtherQuery  # noqa: TC001 - as above
from retrieval_core.types import Degradation  # noqa: TC001 - as above

if TYPE_CHECKING:
    from typing import Self

    from retrieval_core.types import ChunkValidation

__all__ = [
    "ChunkMetadata", "CollectionInfo", "ExecutionMetadata", "RetrievalResponse", "SearchQuery", "SearchResult",
    "ValidationResult",
]  # fmt: skip

LONGEST_QUERY = 10_000
"""Code points of a question."""
MOST_RESULTS = 1000
MOST_INDEXES = 32
NOT_BLANK = r"[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""A character that is no white space, spelled out: that is less in JSON schemas than in Python."""


def _whole(value: object) -> object:
    """JSON knows one kind of number: 5.0 is as whole as 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_blank(text: str) -> str:
    if not text.strip():
        msg = "query_text cannot be empty"
        raise ValueError(msg)
    return text


def _absolute(url: str) -> str:
    """Refuse what is no URL, and keep the others letter by letter; pydantic's own type would write some anew."""
    try:
        AnyUrl(url)
    except ValidationError as error:
        msg = f"{url!r:.200} is no URL with a scheme, such as https://docs.example.com/guide or file:///docs/guide.md"
        raise ValueError(msg) from error
    return url


def _existing_time(text: str) -> str:
    datetime.fromisoformat(text)
    return text


_Count: TypeAlias = Annotated[int, Field(strict=True, ge=0), BeforeValidator(_whole)]
_Rank: TypeAlias = Annotated[int, Field(strict=True, ge=1), BeforeValidator(_whole)]
_TopK: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=MOST_RESULTS), BeforeValidator(_whole)]
_Threshold: TypeAlias = Annotated[float, Field(strict=True, ge=0.0, lt=1.0, allow_inf_nan=False)]
_Score: TypeAlias = Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]
_Words: TypeAlias = Annotated[str, Field(strict=True, min_length=1)]
_Time: TypeAlias = Annotated[
    str,
    Field(strict=True, pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"),
    AfterValidator(_existing_time),
]
"""UTC to the second, ``YYYY-MM-DDTHH:MM:SSZ``."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    left_out: ClassVar[frozenset[str]] = frozenset()
    """Fields that are not in the JSON where they have their defaults."""

    # Without a declared type of its result the JSON schema stays that of the fields.
    @model_serializer(mode="wrap")
    def _without_what_is_not_set(self, handler: SerializerFunctionWrapHandler):
        fields, left_out = type(self).model_fields, self.left_out
        written: dict[str, Any] = handler(self)
        return {
            name: value
            for name, value in written.items()
            if name not in left_out or getattr(self, name) != fields[name].default
        }


class SearchQuery(_Model):
    """A question to the service. All fields below ``similarity_threshold`` are beyond the file."""

    model_config = ConfigDict(extra="forbid")
    left_out = frozenset(
        {"queries", "intent", "index", "indexes", "filters", "history", "mode", "explain", "allow_degraded"}
    )

    query_text: Annotated[
        str,
        Field(strict=True, max_length=LONGEST_QUERY, json_schema_extra={"minLength": 1, "pattern": NOT_BLANK}),
        AfterValidator(_not_blank),
    ]
    """The query, at most 10,000 code points and not only white space."""
    top_k: _TopK = 5
    """The most results, 1 to 1000."""
    similarity_threshold: _Threshold = 0.0
    """Every result is at least so similar: 0 up to, but not including, 1."""
    queries: Annotated[tuple[FurtherQuery, ...], Field(max_length=16)] | None = None
    """More queries to search for, such as ``{"kind": "keywords", "text": "sync wave"}``; all results are fused."""
    intent: Annotated[str, Field(strict=True, max_length=1_000)] | None = None
    """The reason for the query; only vector search uses it."""
    index: _Words | None = None
    """The name of the index to search, if the service has several."""
    indexes: Annotated[tuple[_Words, ...], Field(min_length=1, max_length=MOST_INDEXES)] | None = None
    """The names of several indexes to search as one, instead of ``index``."""
    filters: dict[str, Any] | None = None
    """Filter that every chunk must pass, such as ``{"year": {"$gte": 2020}}``."""
    history: tuple[Message, ...] | None = None
    """The turns of the conversation before the query, oldest first."""
    mode: Annotated[Literal["hybrid", "dense", "lexical"] | None, BeforeValidator(named_mode)] = None
    """Vector search (``dense``), keyword search (``lexical``) or both (``hybrid``). Default: the configured one."""
    explain: StrictBool = False
    """Whether the response has a ``trace``."""
    allow_degraded: StrictBool = False
    """Whether degraded results have the status ``success``, with a list in ``degraded``, or are an error."""


class ChunkMetadata(_Model):
    """Source of a result."""

    left_out = frozenset({"position", "timestamp", "document_title", "index", "payload_chunk_id", "lines"})

    chunk_id: _Words
    """A UUID, or the id that the index has for the chunk, such as ``guide.md#3``."""
    url: Annotated[str, Field(strict=True, json_schema_extra={"format": "uri"}), AfterValidator(_absolute)]
    """URL of the document, with its scheme."""
    position: _Count | None = None
    """Position of the chunk in its document, from 0."""
    timestamp: _Time | None = None
    """Time of indexing, in UTC as ``YYYY-MM-DDTHH:MM:SSZ``."""
    document_title: Annotated[str, Field(strict=True, max_length=500)] | None = None
    index: _Words | None = None
    """Name of its index, if the request searched several."""
    payload_chunk_id: StrictStr | Annotated[int, Field(strict=True)] | None = None
    """The ``chunk_id`` among the chunk's own fields, as the program that wrote them chose it."""
    lines: tuple[_Rank, _Rank] | None = None
    """First and last line, from 1, of the document as it was indexed."""


class SearchResult(_Model):
    """A passage that was found."""

    rank: _Rank
    """From 1."""
    text: _Words
    """As it is stored, byte by byte."""
    similarity_score: _Score
    """Cosine similarity with the query, from 0 to 1; a negative one counts as 0."""
    metadata: ChunkMetadata


class ExecutionMetadata(_Model):
    """How a question was carried out."""

    left_out = frozenset({"query_embedded_at", "qdrant_query_time_ms"})

    latency_ms: _Count
    """From the request to the response, in whole milliseconds."""
    result_count: _Count
    threshold_applied: _Threshold
    """The request's ``similarity_threshold``."""
    query_embedded_at: _Time | None = None
    """In UTC, as ``YYYY-MM-DDTHH:MM:SSZ``."""
    qdrant_query_time_ms: _Count | None = None
    """Duration of the search in the store, of any kind, in whole milliseconds."""


class RetrievalResponse(_Model):
    """The response to a query: results, or errors.

    ``query_syntax``, ``relevance``, ``degraded`` and ``trace`` are beyond the file.

    Raises:
        pydantic.ValidationError: It contradicts itself. Examples are ranks that do not count from 1, rising
            scores, a wrong ``result_count``, or a status that does not fit the errors.
    """

    left_out = frozenset({"query", "query_syntax", "relevance", "degraded", "trace"})

    query: StrictStr | None = None
    """The request's ``query_text``. Only an error may lack it, if the request could not be read."""
    status: Literal["success", "error"]
    results: tuple[SearchResult, ...]
    """Most similar first."""
    execution: ExecutionMetadata
    errors: tuple[StrictStr, ...] = ()
    """Messages; at least one if the status is ``error``, otherwise none."""
    query_syntax: dict[str, Any] | None = None
    """Conditions that were read from the query, if it has any: ``summary``, ``required``, ``excluded``,
    ``conditions`` and ``not_found``, the required phrases that no chunk has."""
    relevance: dict[str, Any] | None = None
    """Whether the results answer the query: ``value``, ``unlikely``, ``unknown``, ``other_language``, ``note`` and
    ``explanation``."""
    degraded: tuple[Degradation, ...] = ()
    """Degraded stages, if the request allows them."""
    trace: dict[str, Any] | None = None
    """Record of each stage, if the request has ``explain``."""

    @model_validator(mode="after")
    def _check_that_it_agrees(self) -> Self:
        scores = [result.similarity_score for result in self.results]
        is_error = self.status == "error"
        wrong = {
            "ranks must count from 1 in steps of 1": any(
                result.rank != rank for rank, result in enumerate(self.results, start=1)
            ),
            "results must be sorted by similarity_score, highest first": scores != sorted(scores, reverse=True),
            "every similarity_score must be at least threshold_applied": any(
                score < self.execution.threshold_applied for score in scores
            ),
            "result_count must be the number of results": self.execution.result_count != len(self.results),
            "status must be error if there are errors, and success if not": is_error != bool(self.errors),
            "an error has no results": is_error and bool(self.results),
            "a success has the query": not is_error and not self.query,
        }
        if told := [problem for problem, is_so in wrong.items() if is_so]:
            msg = "; ".join(told)
            raise ValueError(msg)
        return self


class ValidationResult(_Model):
    """Whether a stored chunk is what was read.

    Raises:
        pydantic.ValidationError: It contradicts itself: it matches with different or empty texts, it passed without
            matching, or it does not match and has no details.
    """

    chunk_id: _Words
    matches: StrictBool
    """Whether both texts are equal, byte by byte."""
    stored_text: StrictStr
    """Empty if nothing is stored, which never matches."""
    original_text: StrictStr
    """Empty if the document has no text there, or is unknown."""
    validation_passed: StrictBool
    """Whether the texts match and so do hash and place."""
    mismatch_details: StrictStr | None = None
    """Description of the differences, if there are any."""

    @classmethod
    def of(cls, validation: ChunkValidation) -> Self:
        """Return what :meth:`retrieval_core.Index.validate` found, in these fields."""
        return cls(
            chunk_id=validation.chunk_id,
            matches=validation.matches,
            stored_text=validation.stored_text,
            original_text=validation.original_text or "",
            validation_passed=validation.validation_passed,
            mismatch_details=validation.mismatch_details,
        )

    @model_validator(mode="after")
    def _check_that_it_agrees(self) -> Self:
        wrong = {
            "texts that match are equal": self.matches and self.stored_text != self.original_text,
            "an empty stored_text does not match": self.matches and not self.stored_text,
            "validation_passed needs matches": self.validation_passed and not self.matches,
            "mismatch_details must say what differs": not self.matches and not self.mismatch_details,
        }
        if told := [problem for problem, is_so in wrong.items() if is_so]:
            msg = "; ".join(told)
            raise ValueError(msg)
        return self


class CollectionInfo(_Model):
    """A collection of Qdrant, or an index by its names; of the test-suite file."""

    name: _Words
    vector_size: _Count
    """Components of each vector; 0 for an index without vectors."""
    distance_metric: Literal["Cosine", "Euclidean", "Dot"]
    points_count: _Count
    indexed_vectors_count: _Count
    status: Literal["green", "yellow", "red"]
    """As Qdrant has it: usable, being optimised, or failed."""
