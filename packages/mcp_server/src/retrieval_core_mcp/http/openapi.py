"""The contract as an OpenAPI document."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from retrieval_core.compat.service import CollectionInfo, RetrievalResponse, SearchQuery
from retrieval_core_mcp.http.answers import (
    ChunkAnswer,
    ContextAnswer,
    DocumentAnswer,
    DocumentsAnswer,
    ErrorAnswer,
    ExplainAnswer,
    FieldsAnswer,
    Health,
    IndexesAnswer,
    PageAnswer,
    QuoteAnswer,
    Readiness,
    RemovedAnswer,
    SuiteReportAnswer,
    ValidationAnswer,
    WrittenAnswer,
)
from retrieval_core_mcp.http.arguments import AnswerQuery, ContextQuery, ExplainQuery, NewDocuments, QuoteToCheck
from retrieval_core_mcp.http.files import KIND, LONGEST_NAME, NAME
from retrieval_core_mcp.http.filters_schema import FILTER
from retrieval_core_mcp.http.pages import LAST_PAGE, NARROWEST, WIDEST
from retrieval_core_mcp.http.reading import LARGEST_OFFSET, MOST_CHARACTERS, MOST_DOCUMENTS

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.json_schema import JsonSchemaMode

VERSION = "1.0"
"""Of the contract: a field that is removed, retyped, made required or narrowed needs a new one."""

_ERRORS = {
    "400": "Something in the request is wrong; there is a message for each field.",
    "401": "The token is missing or wrong.",
    "403": "The page, or the token, may not do this.",
    "404": "There is no such index, chunk, document or path.",
    "413": "The body is too long.",
    "415": "The body is not of the type that is wanted.",
    "421": "The service is not called by this host name.",
    "500": "Something that nobody expected; the log has the request's id.",
    "501": "The service was not set up for this; see the message for what to install or set.",
    "503": "The store or the embedder is not available, the service is busy, or it ends; see Retry-After.",
}
_QUESTIONS = (SearchQuery, ContextQuery, AnswerQuery, ExplainQuery)
_REQUESTS = (*_QUESTIONS, NewDocuments, QuoteToCheck)
_ANSWERS = (
    RetrievalResponse,
    ContextAnswer,
    ExplainAnswer,
    ChunkAnswer,
    ValidationAnswer,
    PageAnswer,
    QuoteAnswer,
    DocumentsAnswer,
    DocumentAnswer,
    IndexesAnswer,
    CollectionInfo,
    FieldsAnswer,
    SuiteReportAnswer,
    WrittenAnswer,
    RemovedAnswer,
    ErrorAnswer,
    Health,
    Readiness,
)
_EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string", "description": "The type of the event."},
        "data": {"type": "string", "description": "The event as JSON."},
    },
}
_QUESTION = {"query_text": "How do I set up a vector database?", "top_k": 10, "similarity_threshold": 0.7}
_EXAMPLES: dict[str, Any] = {
    "SearchQuery": _QUESTION,
    "ContextQuery": {"query_text": "How do I set up a vector database?", "max_tokens": 2000},
    "AnswerQuery": {"query_text": "How do I set up a vector database?"},
    "ExplainQuery": {"query_text": "How do I set up a vector database?", "top_k": 3},
    "QuoteToCheck": {"quote": "The moon has no air."},
    "NewDocuments": {"documents": [{"id": "setup.md", "text": "To set up a vector database, first install it."}]},
}
_INDEX = {
    "name": "index",
    "in": "query",
    "description": "The index. Default: the first one.",
    "schema": {"type": "string"},
}
_CHUNK_ID = {
    "name": "chunk_id",
    "in": "path",
    "required": True,
    "description": "The id of a result, percent-encoded.",
    "schema": {"type": "string", "minLength": 1},
}
_PDF_CHUNK_ID = {**_CHUNK_ID, "example": "guide.pdf#0"}
_PAGE = {
    "name": "page",
    "in": "query",
    "description": "The number of a page of the chunk. Default: its first page.",
    "schema": {"type": "integer", "minimum": 1, "maximum": LAST_PAGE},
    "example": 1,
}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
_DOCUMENT_ID = {**_CHUNK_ID, "name": "document_id"}
_CURSOR = {
    "name": "cursor",
    "in": "query",
    "description": "The next_cursor of the previous part. Default: the first part.",
    "schema": {"type": "string"},
}

_PART_OF_NAME = {
    "name": "name",
    "in": "query",
    "description": "A part of the document ids, in upper or lower case.",
    "schema": {"type": "string"},
}


def _number(name: str, least: int, most: int, default: int, description: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": least, "maximum": most, "default": default}
    return {"name": name, "in": "query", "description": description, "schema": schema}


def document() -> dict[str, Any]:
    """Return the document; the caller's own."""
    return deepcopy(_document())


@cache
def _document() -> dict[str, Any]:
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [(model, "validation") for model in _REQUESTS]
    models.extend((model, "serialization") for model in _ANSWERS)
    _, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")
    components = schemas["$defs"]
    components["Filter"] = FILTER
    for model in _QUESTIONS:
        filters = components[model.__name__]["properties"]["filters"]
        filters["anyOf"] = [
            {"$ref": "#/components/schemas/Filter"},
            {"type": "object", "maxProperties": 0, "description": "None, as programs build it."},
            {"type": "null"},
        ]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "retrieval-core",
            "version": VERSION,
            "description": "Passages that answer a question, with their sources; every error has the same form.",
        },
        "paths": _paths(),
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _paths() -> dict[str, Any]:
    return {
        "/v1/search": {
            "post": _operation("search", "Find passages, the most similar first", RetrievalResponse, body=SearchQuery)
        },
        "/v1/context": {
            "post": _operation(
                "context", "Find passages and pack them for a language model", ContextAnswer, body=ContextQuery
            )
        },
        "/v1/answer": {"post": _events("answer", "Answer a question, as server-sent events", AnswerQuery)},
        "/v1/explain": {
            "post": _operation(
                "explain",
                "Tell why a search returns what it does, and another passage not",
                ExplainAnswer,
                body=ExplainQuery,
            )
        },
        "/v1/chunks/{chunk_id}": {
            "get": _operation("get_chunk", "Read a passage", ChunkAnswer, parameters=[_CHUNK_ID, _INDEX])
        },
        "/v1/chunks/{chunk_id}/validate": {
            "post": _operation(
                "validate_chunk",
                "Hold a stored passage against what was read, and its file",
                ValidationAnswer,
                parameters=[_CHUNK_ID, _INDEX],
            )
        },
        "/v1/chunks/{chunk_id}/quote": {
            "post": _operation(
                "check_quote",
                "Look for a quote in a passage and its document",
                QuoteAnswer,
                body=QuoteToCheck,
                parameters=[_CHUNK_ID, _INDEX],
            )
        },
        "/v1/chunks/{chunk_id}/page": {
            "get": _operation(
                "get_page",
                "Tell where a passage of a PDF stands on one of its pages",
                PageAnswer,
                parameters=[_PDF_CHUNK_ID, _INDEX, _PAGE],
            )
        },
        "/v1/chunks/{chunk_id}/page.png": {"get": _picture()},
        "/v1/indexes": {"get": _operation("list_indexes", "List the indexes", IndexesAnswer)},
        "/v1/indexes/{name}": {
            "get": _operation(
                "get_index",
                "Describe an index",
                CollectionInfo,
                parameters=[_NAME],
            )
        },
        "/v1/indexes/{name}/fields": {
            "get": _operation(
                "list_fields", "List the fields by which an index can be filtered", FieldsAnswer, parameters=[_NAME]
            )
        },
        "/v1/documents": {
            "get": _operation(
                "list_documents",
                "List the documents, in parts",
                DocumentsAnswer,
                parameters=[
                    _INDEX,
                    _PART_OF_NAME,
                    _number("limit", 1, MOST_DOCUMENTS, 100, "The most documents."),
                    _CURSOR,
                ],
            ),
            "post": _operation(
                "write_documents", "Write documents, with --allow-writes", WrittenAnswer, body=NewDocuments
            ),
            "delete": _operation(
                "remove_documents",
                "Remove documents, with --allow-writes",
                RemovedAnswer,
                parameters=[
                    {
                        "name": "id",
                        "in": "query",
                        "required": True,
                        "description": "Of the documents; it may be repeated.",
                        "schema": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 100},
                    },
                    _INDEX,
                ],
            ),
        },
        "/v1/documents/{document_id}": {
            "get": _operation(
                "get_document",
                "Read a document, in parts",
                DocumentAnswer,
                parameters=[
                    _DOCUMENT_ID,
                    _INDEX,
                    _number("offset", 0, LARGEST_OFFSET, 0, "The first character of the part."),
                    _number("limit", 1, MOST_CHARACTERS, 50_000, "The most characters."),
                ],
            )
        },
        "/v1/files": {"post": _file()},
        "/v1/suite-report": {
            "get": _operation("suite_report", "Tell what became of the last run of a test suite", SuiteReportAnswer)
        },
        "/healthz": {"get": _operation("healthz", "Whether the process lives", Health)},
        "/readyz": {"get": _ready()},
        "/metrics": {"get": _text("metrics", "Counters for Prometheus", "text/plain")},
    }


def _operation(
    name: str,
    summary: str,
    answer: type[BaseModel],
    *,
    body: type[BaseModel] | None = None,
    parameters: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    told: dict[str, Any] = {"operationId": name, "summary": summary}
    if parameters:
        told["parameters"] = parameters
    if body is not None:
        told["requestBody"] = {"required": True, "content": _json(body.__name__)}
    return told | {"responses": {"200": {"description": "Done.", "content": _json(answer.__name__)}, **_errors()}}


def _events(name: str, summary: str, body: type[BaseModel]) -> dict[str, Any]:
    told = _operation(name, summary, ErrorAnswer, body=body)
    told["responses"]["200"] = {
        "description": "Events: the results, the answer bit by bit, last done; error if it fails.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
    return told


def _file() -> dict[str, Any]:
    name = {
        "name": "name",
        "in": "query",
        "required": True,
        "description": "The file name without folders. Its ending is its type.",
        "schema": {"type": "string", "maxLength": LONGEST_NAME, "pattern": NAME},
        "example": "notes.md",
    }
    told = _operation(
        "index_file", "Index a file, as server-sent events, with --allow-writes", ErrorAnswer, parameters=[name, _INDEX]
    )
    content = {"schema": {"type": "string", "format": "binary", "minLength": 1}}
    told["requestBody"] = {"required": True, "content": {KIND: content}}
    told["responses"]["200"] = {
        "description": "Events: received, progress after each write, last done or failed, which has the reason.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
    return told


def _text(name: str, summary: str, kind: str) -> dict[str, Any]:
    told = _operation(name, summary, ErrorAnswer)
    told["responses"]["200"]["content"] = {kind: {"schema": {"type": "string"}}}
    return told


def _picture() -> dict[str, Any]:
    width = _number("width", NARROWEST, WIDEST, 1_000, "In pixels; a page that is very long gets fewer.")
    told = _operation(
        "get_page_picture",
        "Show the page of a passage of a PDF",
        ErrorAnswer,
        parameters=[_PDF_CHUNK_ID, _INDEX, _PAGE, width],
    )
    told["responses"]["200"]["content"] = {"image/png": {"schema": {"type": "string", "format": "binary"}}}
    return told


def _ready() -> dict[str, Any]:
    told = _operation("readyz", "Whether every index can be searched", Readiness)
    told["responses"]["503"] = {"description": "Not yet, or the service ends.", "content": _json(Readiness.__name__)}
    return told


def _errors() -> dict[str, Any]:
    return {
        status: {"description": meaning, "content": _json(ErrorAnswer.__name__)} for status, meaning in _ERRORS.items()
    }


def _json(model: str) -> dict[str, Any]:
    example = {"example": _EXAMPLES[model]} if model in _EXAMPLES else {}
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}, **example}}
