"""The service file: its JSON examples are valid and come back equal, and its tables hold, bounds included."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ValidationError

from retrieval_core.compat.service import (
    NOT_BLANK,
    ChunkMetadata,
    CollectionInfo,
    ExecutionMetadata,
    RetrievalResponse,
    SearchQuery,
    SearchResult,
    ValidationResult,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

QUERY = """
{
  "query_text": "How do I set up a vector database?",
  "top_k": 10,
  "similarity_threshold": 0.7
}
"""
METADATA = """
{
  "chunk_id": "550e8400-e29b-41d4-a716-446655440000",
  "url": "https://docs.example.com/guide/setup",
  "position": 245,
  "timestamp": "2025-12-15T10:30:00Z",
  "document_title": "Vector Database Setup Guide"
}
"""
RESULT = """
{
  "rank": 1,
  "text": "To set up a vector database, first install the Qdrant Docker image...",
  "similarity_score": 0.92,
  "metadata": {
    "chunk_id": "550e8400-e29b-41d4-a716-446655440000",
    "url": "https://docs.example.com/guide/setup",
    "position": 245,
    "timestamp": "2025-12-15T10:30:00Z",
    "document_title": "Vector Database Setup Guide"
  }
}
"""
EXECUTION = """
{
  "latency_ms": 145,
  "result_count": 5,
  "threshold_applied": 0.7,
  "query_embedded_at": "2025-12-16T14:30:01Z",
  "qdrant_query_time_ms": 120
}
"""
SUCCESS = """
{
  "query": "How do I set up a vector database?",
  "status": "success",
  "results": [
    {
      "rank": 1,
      "text": "To set up a vector database, first install...",
      "similarity_score": 0.92,
      "metadata": {...}
    }
  ],
  "execution": {
    "latency_ms": 145,
    "result_count": 1,
    "threshold_applied": 0.7
  },
  "errors": []
}
"""
"""The first of two examples that contradict the file: ``{...}`` is no JSON, and metadata have two required fields."""
ERROR = """
{
  "query": "How do I set up a vector database?",
  "status": "error",
  "results": [],
  "execution": {
    "latency_ms": 50,
    "result_count": 0,
    "threshold_applied": 0.0
  },
  "errors": [
    "Qdrant service unavailable at http://localhost:6333",
    "Connection timeout after 5 seconds"
  ]
}
"""
ERROR_STRUCTURE = """
{
  "status": "error",
  "results": [],
  "errors": [
    "Primary error message",
    "Secondary error if applicable"
  ],
  "execution": {
    "latency_ms": 50,
    "result_count": 0,
    "threshold_applied": 0.0
  }
}
"""
"""The second: the table requires ``query``. So an error may lack it, and a success may not."""
PASS = """
{
  "chunk_id": "550e8400-e29b-41d4-a716-446655440000",
  "matches": true,
  "stored_text": "To set up a vector database...",
  "original_text": "To set up a vector database...",
  "validation_passed": true,
  "mismatch_details": null
}
"""
FAIL = """
{
  "chunk_id": "550e8400-e29b-41d4-a716-446655440000",
  "matches": false,
  "stored_text": "To set up a vector dat...",
  "original_text": "To set up a vector database...",
  "validation_passed": false,
  "mismatch_details": "Stored text truncated or corrupted (length mismatch: 24 vs 32 chars)"
}
"""
COLLECTION = {
    "name": "textbook_embeddings",
    "vector_size": 1024,
    "distance_metric": "Cosine",
    "points_count": 5432,
    "indexed_vectors_count": 5432,
    "status": "green",
}
"""The example of the test-suite file, whose arguments these are."""
EXAMPLES: Mapping[str, tuple[type[BaseModel], str]] = {
    "query": (SearchQuery, QUERY),
    "metadata": (ChunkMetadata, METADATA),
    "result": (SearchResult, RESULT),
    "execution": (ExecutionMetadata, EXECUTION),
    "success": (RetrievalResponse, SUCCESS.replace("{...}", METADATA)),
    "error": (RetrievalResponse, ERROR),
    "error structure": (RetrievalResponse, ERROR_STRUCTURE),
    "pass": (ValidationResult, PASS),
    "fail": (ValidationResult, FAIL),
    "collection": (CollectionInfo, json.dumps(COLLECTION)),
}
TABLES: Mapping[type[BaseModel], tuple[str, str]] = {
    SearchQuery: ("query_text", "top_k similarity_threshold"),
    ChunkMetadata: ("chunk_id url", "position timestamp document_title"),
    SearchResult: ("rank text similarity_score metadata", ""),
    ExecutionMetadata: ("latency_ms result_count threshold_applied", "query_embedded_at qdrant_query_time_ms"),
    RetrievalResponse: ("query status results execution", "errors"),
    ValidationResult: ("chunk_id matches stored_text original_text validation_passed", "mismatch_details"),
    CollectionInfo: ("name vector_size distance_metric points_count indexed_vectors_count status", ""),
}
"""The fields of each table, the required ones first."""


def without(model: str, *names: str, **changes: Any) -> dict[str, Any]:
    """Return an example with other values, and without some."""
    fields = json.loads(EXAMPLES[model][1]) | changes
    return {name: value for name, value in fields.items() if name not in names}


def response(*scores: float, **changes: Any) -> dict[str, Any]:
    """Return a response with results of these scores."""
    results = [without("result", rank=rank, similarity_score=score) for rank, score in enumerate(scores, start=1)]
    execution = without("execution", result_count=len(scores), threshold_applied=0.0)
    return without("success", results=results, execution=execution) | changes


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_is_valid_and_comes_back_equal(name: str) -> None:
    """From text, from parsed JSON, and through the model: always the same JSON."""
    model, text = EXAMPLES[name]
    read = model.model_validate_json(text)
    assert model.model_validate(json.loads(text)) == read
    assert json.loads(read.model_dump_json()) == json.loads(text)
    assert model.model_validate_json(read.model_dump_json()) == read


def test_the_two_examples_that_contradict_the_file() -> None:
    """The success has a placeholder that is no JSON, and the error structure lacks the required query."""
    with pytest.raises(json.JSONDecodeError):
        json.loads(SUCCESS)
    assert "query" not in json.loads(ERROR_STRUCTURE)
    with pytest.raises(ValidationError, match="a success has the query"):
        RetrievalResponse.model_validate(without("success", "query"))


@pytest.mark.parametrize("model", TABLES, ids=lambda model: model.__name__)
def test_the_tables(model: type[BaseModel]) -> None:
    """Each field of a table is there, in its order, and the required ones are required."""
    required, optional = (names.split() for names in TABLES[model])
    assert list(model.model_fields)[: len(required + optional)] == required + optional
    is_required = {name for name, field in model.model_fields.items() if field.is_required()}
    assert is_required == set(required) - ({"query"} if model is RetrievalResponse else set())
    assert model.model_config.get("frozen")


def test_defaults() -> None:
    """They are the file's, and what is beyond the file is not in the JSON until it is set."""
    query = SearchQuery(query_text="x")
    assert query.model_dump() == {"query_text": "x", "top_k": 5, "similarity_threshold": 0.0}
    beyond = {
        "index": "docs",
        "filters": {"year": {"$gte": 2020}},
        "history": [{"role": "user", "content": "and before that?"}],
        "mode": "lexical",
        "explain": True,
        "allow_degraded": True,
    }
    told = SearchQuery.model_validate({"query_text": "x", **beyond})
    assert json.loads(told.model_dump_json()) == {**query.model_dump(), **beyond}
    answered = RetrievalResponse.model_validate(
        response(0.5, degraded=[{"stage": "embed", "reason": "it is down"}], trace={"stages": []})
    )
    assert json.loads(answered.model_dump_json()) == response(
        0.5, degraded=[{"stage": "embed", "reason": "it is down"}], trace={"stages": []}
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("query", {"query_text": ""}),
        ("query", {"query_text": " \t\n\u3000"}),
        ("query", {"query_text": "x" * 10_001}),
        ("query", {"query_text": 5}),
        ("query", {"top_k": 0}),
        ("query", {"top_k": 1001}),
        ("query", {"top_k": "5"}),
        ("query", {"top_k": True}),
        ("query", {"top_k": 5.5}),
        ("query", {"top_k": math.nan}),
        ("query", {"top_k": math.inf}),
        ("query", {"top_k": None}),
        ("query", {"similarity_threshold": 1.0}),
        ("query", {"similarity_threshold": 1}),
        ("query", {"similarity_threshold": -0.1}),
        ("query", {"similarity_threshold": math.nan}),
        ("query", {"similarity_threshold": "0.5"}),
        ("query", {"similarity_threshold": False}),
        ("query", {"explain": 1}),
        ("query", {"allow_degraded": "true"}),
        ("query", {"mode": "fuzzy"}),
        ("query", {"history": [{"role": "robot", "content": "x"}]}),
        ("query", {"topk": 5}),
        ("metadata", {"chunk_id": ""}),
        ("metadata", {"url": "guides/setup.md"}),
        ("metadata", {"url": ""}),
        ("metadata", {"position": -1}),
        ("metadata", {"position": True}),
        ("metadata", {"timestamp": "yesterday"}),
        ("metadata", {"timestamp": "2025-13-15T10:30:00Z"}),
        ("metadata", {"timestamp": "2025-12-15 10:30:00"}),
        ("metadata", {"timestamp": "2025-12-15T10:30:00Z\n"}),
        ("metadata", {"document_title": "x" * 501}),
        ("result", {"rank": 0}),
        ("result", {"text": ""}),
        ("result", {"similarity_score": 1.01}),
        ("result", {"similarity_score": -0.01}),
        ("result", {"similarity_score": math.nan}),
        ("result", {"metadata": None}),
        ("execution", {"latency_ms": -1}),
        ("execution", {"latency_ms": 1.5}),
        ("execution", {"threshold_applied": 1.0}),
        ("execution", {"qdrant_query_time_ms": -1}),
        ("error", {"status": "partial"}),
        ("pass", {"matches": 1}),
        ("pass", {"chunk_id": None}),
        ("collection", {"points_count": -1}),
        ("collection", {"status": "blue"}),
        ("collection", {"distance_metric": "cosine"}),
    ],
)
def test_what_a_table_excludes(name: str, changes: dict[str, Any]) -> None:
    """A value outside of its range, or of another type, is refused and never made to fit, whether parsed or not."""
    model, _ = EXAMPLES[name]
    body = without(name, **changes)
    with pytest.raises(ValidationError):
        model.model_validate(body)
    with pytest.raises(ValidationError):
        model.model_validate_json(json.dumps(body))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("query", {"query_text": "\U0001f511" * 10_000}),
        ("query", {"top_k": 1}),
        ("query", {"top_k": 1000.0}),
        ("query", {"similarity_threshold": 0}),
        ("query", {"similarity_threshold": 0.999999}),
        ("metadata", {"chunk_id": "guide.md#3", "url": "file:///docs/a%20guide.md"}),
        ("metadata", {"position": 0, "document_title": "x" * 500}),
        ("result", {"similarity_score": 1}),
        ("execution", {"latency_ms": 0, "result_count": 0}),
    ],
)
def test_what_a_table_just_includes(name: str, changes: dict[str, Any]) -> None:
    """The ends of the ranges; a number without fraction is a whole one, however it is written."""
    model, _ = EXAMPLES[name]
    read = model.model_validate_json(json.dumps(without(name, **changes)))
    assert {field: getattr(read, field) for field in changes} == changes


def test_what_is_blank_to_the_schema_is_blank_to_the_model() -> None:
    """Of all characters, those that a client's validator lets through alone are those that make a question."""
    by_schema = {number for number in range(sys.maxunicode + 1) if re.search(NOT_BLANK, chr(number))}
    assert by_schema == {number for number in range(sys.maxunicode + 1) if chr(number).strip()}


def test_bounds_are_in_the_schema() -> None:
    """Whoever makes a form or a client from it finds them; and answers have the same schema as they are written."""
    fields = SearchQuery.model_json_schema()["properties"]
    beside = {"title": "", "description": ""}
    assert fields["query_text"] | beside == {
        "type": "string",
        "minLength": 1,
        "maxLength": 10_000,
        "pattern": NOT_BLANK,
        **beside,
    }
    assert fields["top_k"] | beside == {
        "type": "integer",
        "minimum": 1,
        "maximum": 1000,
        "default": 5,
        **beside,
    }
    assert fields["similarity_threshold"] | beside == {
        "type": "number",
        "minimum": 0.0,
        "exclusiveMaximum": 1.0,
        "default": 0.0,
        **beside,
    }
    for model in TABLES:
        read, written = (model.model_json_schema(mode=mode) for mode in ("validation", "serialization"))
        assert written["properties"] == read["properties"]
        assert written["required"] == read["required"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (response(0.9, 0.8, results=response(0.8, 0.9)["results"][::-1]), "ranks must count"),
        (response(0.8, 0.9), "must be sorted"),
        (response(0.9, results=[]), "result_count"),
        (response(0.9, errors=["x"]), "status must be error if there are errors"),
        (response(status="error"), "status must be error if there are errors"),
        (response(0.9, status="error", errors=["x"]), "an error has no results"),
        (response(0.6, execution=without("execution", result_count=1, threshold_applied=0.7)), "at least"),
    ],
)
def test_responses_that_contradict_themselves(body: dict[str, Any], why: str) -> None:
    """The file's invariants hold in every response that there is."""
    with pytest.raises(ValidationError, match=why):
        RetrievalResponse.model_validate(body)


def test_responses_may_be_empty_or_tied() -> None:
    """No match is a success, and equal scores are in order."""
    assert RetrievalResponse.model_validate(response()).results == ()
    assert [result.rank for result in RetrievalResponse.model_validate(response(0.5, 0.5, 0.1)).results] == [1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"matches": True}, "texts that match are equal"),
        ({"matches": True, "stored_text": "", "original_text": ""}, "an empty stored_text does not match"),
        ({"validation_passed": True}, "validation_passed needs matches"),
        ({"mismatch_details": None}, "must say what differs"),
        ({"mismatch_details": ""}, "must say what differs"),
    ],
)
def test_validations_that_contradict_themselves(changes: dict[str, Any], why: str) -> None:
    """A chunk passes with equal texts alone, and one that does not match says how."""
    with pytest.raises(ValidationError, match=why):
        ValidationResult.model_validate(without("fail", **changes))


def test_an_empty_stored_text_can_be_told() -> None:
    """The table wants a text, and what is lost has none: it is there as an empty one that does not match."""
    read = ValidationResult.model_validate(without("fail", stored_text=""))
    assert (read.stored_text, read.matches) == ("", False)
