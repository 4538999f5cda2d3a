"""The table of routes: each row is a path, the models of its request and response, and the function that answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from retrieval_core.compat.service import CollectionInfo, RetrievalResponse, SearchQuery
from retrieval_core.service import checking, contents, grep, outline, passages, reading, uploads, writing
from retrieval_core.service.service_context import ServiceContext, ServiceModel
from retrieval_core_mcp.http import answers, contract, endpoints, search
from retrieval_core_mcp.http.arguments import (
    AnswerQuery,
    ContextQuery,
    ExplainQuery,
    note_query,
    number_or_text,
    read_arguments,
    unknown_field,
)
from retrieval_core_mcp.http.bodies import read_object
from retrieval_core_mcp.http.clients import while_connected
from retrieval_core_mcp.http.envelope import RequestError, error_response, json_response
from retrieval_core_mcp.http.files import KIND, Files
from retrieval_core_mcp.http.oauth import WRITE, OAuth, insufficient
from retrieval_core_mcp.http.problems import refused
from retrieval_core_mcp.http.search import QueryContents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from retrieval_core.run.observe import Metrics
    from retrieval_core.service.served import ServedIndexes
    from retrieval_core_mcp.http.envelope import Call
    from retrieval_core_mcp.http.metrics import HttpMetrics
    from retrieval_core_mcp.http.settings import HttpSettings

JSON_TYPE = "application/json"
EVENTS = "text/event-stream"
_QUERY = {"query_text": "How do I set up a vector database?"}
_NEW_DOCUMENT = {"id": "setup.md", "text": "To set up a vector database, first install it."}


class NoRequest(ServiceModel):
    """A request that asks for nothing more than its path."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One method of one path.

    Attributes:
        name: The operation's ID in OpenAPI.
        request: Its fields come from the path, the query string and the body.
        response: The body of the answer; ``None`` if that is no JSON.
        function: A function of the service, or one that returns a response of the contract.
        endpoint: Answers instead of a function, if the contract is another one.
        body: Fields that come from the JSON body; ``all`` for all fields; OpenAPI then shows them as one model.
        names: Names in the address of fields that have another one in the model.
        media: The media type of the answer.
        takes: The media type of the body; ``None`` without a body.
        writes: Whether it changes an index.
        done: What the answer 200 is.
        unready: The model of an answer 503 that is not an error.
        examples: Values of parameters, and a ``body``.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    name: str
    summary: str
    request: type[BaseModel] = NoRequest
    response: type[BaseModel] | None = None
    function: Callable[[ServiceContext, Any], Awaitable[Any]] | None = None
    endpoint: Callable[[Asked, Any], Awaitable[ASGIApp]] | None = None
    body: tuple[str, ...] | Literal["all"] = ()
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    media: str = JSON_TYPE
    takes: str | None = None
    writes: bool = False
    done: str = "Done."
    unready: type[BaseModel] | None = None
    examples: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @cached_property
    def parameters(self) -> dict[str, str]:
        """Fields that come from the address, with their names there."""
        if self.body == "all":
            return {}
        return {name: self.names.get(name, name) for name in self.request.model_fields if name not in self.body}

    @cached_property
    def schemas(self) -> dict[str, dict[str, Any]]:
        """The JSON schemas of the fields."""
        return self.request.model_json_schema().get("properties", {})


_CHUNK = {"id": "chunk_id"}
_INDEX = {"index": "name"}
_PDF = {"chunk_id": "guide.pdf#0", "page": 1}
ROWS = (
    Row(
        method="POST", path="/v1/search", name="search", summary="Search, and list the most similar chunks first",
        request=SearchQuery, body="all", response=RetrievalResponse, function=search.search,
        examples={"body": {**_QUERY, "top_k": 10, "similarity_threshold": 0.7}},
    ),
    Row(
        method="POST", path="/v1/context", name="context", summary="Search, and pack the results for a language model",
        request=ContextQuery, body="all", response=answers.ContextAnswer, function=search.pack_context,
        examples={"body": {**_QUERY, "max_tokens": 2000}},
    ),
    Row(
        method="POST", path="/v1/grep", name="grep", summary="Search the text of all documents for a pattern",
        request=grep.GrepRequest, body="all", response=grep.GrepResponse, function=grep.grep,
        examples={"body": {"pattern": "vector database|VectorStore", "path": "docs/*.md", "context": 2}},
    ),
    Row(
        method="POST", path="/v1/explain", name="explain", summary="Explain the results of a search",
        request=ExplainQuery, body="all", response=answers.ExplainAnswer, function=search.explain,
        examples={"body": {**_QUERY, "top_k": 3}},
    ),
    Row(
        method="POST", path="/v1/answer", name="answer", summary="Answer a question, as server-sent events",
        request=AnswerQuery, body="all", endpoint=endpoints.answer, media=EVENTS,
        done="Events: the results, the answer bit by bit, last done; error if it fails.", examples={"body": _QUERY},
    ),
    Row(
        method="POST", path="/v1/chunks/{chunk_id:path}/validate", name="validate_chunk", names=_CHUNK,
        summary="Compare a stored chunk with its document and its file",
        request=reading.ChunkRequest, response=answers.ValidationAnswer, function=contract.validate_chunk,
    ),
    Row(
        method="POST", path="/v1/chunks/{chunk_id:path}/quote", name="check_quote", names=_CHUNK,
        summary="Look for a quote in a chunk and its document", body=("quote",),
        request=checking.QuoteRequest, response=checking.QuoteResponse, function=checking.verify_quote,
        examples={"body": {"quote": "The moon has no air."}},
    ),
    Row(
        method="GET", path="/v1/chunks/{chunk_id:path}/page", name="get_page", names=_CHUNK,
        summary="Find a chunk of a PDF on one of its pages",
        request=reading.PageRequest, response=reading.PageResponse, function=reading.read_page, examples=_PDF,
    ),
    Row(
        method="GET", path="/v1/chunks/{chunk_id:path}/page.png", name="get_page_picture", names=_CHUNK,
        summary="Show the page of a chunk of a PDF",
        request=reading.PictureRequest, function=reading.read_picture, media="image/png", examples=_PDF,
    ),
    Row(
        method="GET", path="/v1/chunks/{chunk_id:path}", name="get_chunk", summary="Read a chunk", names=_CHUNK,
        request=reading.ChunkRequest, response=answers.ChunkAnswer, function=contract.read_chunk,
    ),
    Row(
        method="GET", path="/v1/indexes", name="list_indexes", summary="List the indexes",
        response=answers.IndexesAnswer, endpoint=endpoints.list_indexes,
    ),
    Row(
        method="GET", path="/v1/indexes/{name}", name="get_index", summary="Describe an index", names=_INDEX,
        request=contents.IndexRequest, response=CollectionInfo, function=contract.describe_index,
    ),
    Row(
        method="GET", path="/v1/indexes/{name}/fields", name="list_fields", names=_INDEX,
        summary="List the fields that filters can name",
        request=contents.IndexRequest, response=contents.FieldsResponse, function=contents.list_fields,
    ),
    Row(
        method="GET", path="/v1/documents", name="list_documents", summary="List the documents, in pages",
        request=contents.DocumentsRequest, response=contents.DocumentsResponse, function=contents.list_documents,
    ),
    Row(
        method="POST", path="/v1/documents", name="write_documents", summary="Write documents, with --allow-writes",
        request=writing.WriteRequest, body="all", response=writing.WriteResponse, function=writing.write_documents,
        writes=True, examples={"body": {"documents": [_NEW_DOCUMENT]}},
    ),
    Row(
        method="DELETE", path="/v1/documents", name="remove_documents", summary="Remove documents, with --allow-writes",
        request=writing.RemoveRequest, names={"ids": "id"}, response=writing.RemoveResponse, function=writing.remove,
        writes=True,
    ),
    Row(
        method="GET", path="/v1/documents/{document_id:path}", name="get_document", names={"id": "document_id"},
        summary="Read a document, in parts",
        request=reading.DocumentRequest, response=reading.DocumentResponse, function=reading.read_document,
    ),
    Row(
        method="GET", path="/v1/outline", name="get_outline", names={"id": "path"},
        summary="List the sections of a document, with their lines",
        request=outline.OutlineRequest, response=outline.OutlineResponse, function=outline.outline,
    ),
    Row(
        method="GET", path="/v1/passages", name="get_passages", names={"ids": "id"},
        summary="Read several chunks, documents and lines",
        request=passages.PassagesRequest, response=passages.PassagesResponse, function=passages.read_passages,
    ),
    Row(
        method="POST", path="/v1/files", name="index_file", writes=True, takes=KIND, media=EVENTS,
        summary="Index a file, as server-sent events, with --allow-writes",
        request=uploads.UploadRequest, endpoint=endpoints.index_file, examples={"name": "notes.md"},
        done="Events: received, progress after each write, last done or failed, which has the reason.",
    ),
    Row(
        method="GET", path="/v1/suite-report", name="suite_report", summary="Report the last run of a test suite",
        response=answers.SuiteReportAnswer, endpoint=endpoints.suite_report,
    ),
    Row(
        method="GET", path="/healthz", name="healthz", summary="Report whether the process is running",
        response=answers.Health, endpoint=endpoints.health,
    ),
    Row(
        method="GET", path="/readyz", name="readyz", summary="Report whether every index can be searched",
        response=answers.Readiness, endpoint=endpoints.readiness, unready=answers.Readiness,
    ),
    Row(
        method="GET", path="/metrics", name="metrics", summary="Counters for Prometheus",
        endpoint=endpoints.metrics, media="text/plain",
    ),
    Row(method="GET", path="/openapi.json", name="openapi", summary="This document", endpoint=endpoints.openapi),
)  # fmt: skip
"""A path that begins like another one comes after it."""


@dataclass(frozen=True, slots=True)
class HttpService:
    """State that the endpoints share.

    Attributes:
        metrics: Those of the queries, which the indexes were opened with.
        allow_writes: Whether indexes may be changed.
    """

    indexes: ServedIndexes
    settings: HttpSettings
    metrics: Metrics
    http_metrics: HttpMetrics
    files: Files
    allow_writes: bool

    def routes(self) -> list[Route]:
        """Return the routes of all rows: one per path, which knows all methods and so names them to other ones."""
        by_path: dict[str, dict[str, Row]] = defaultdict(dict)
        for row in ROWS:
            by_path[row.path][row.method] = row
        return [ExactRoute(path, Endpoint(self, rows), methods=list(rows)) for path, rows in by_path.items()]

    async def answer(self, row: Row, request: Request) -> ASGIApp:
        """Answer a request, also with an error of the contract, whatever goes wrong."""
        call: Call = request.state.call
        context = ServiceContext(self.indexes, call.condition, self.allow_writes and call.may_write)
        asked = Asked(self, row, request, call, context)
        # A file that is sent meanwhile has its own limit, and whoever asks for readiness waits for the model.
        is_limited = row.takes is None and row.path.startswith("/v1/")
        limit = asyncio.timeout(self.settings.request_seconds if is_limited else None)
        try:
            async with limit:
                return await asked.answer()
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            if limit.expired():
                msg = f"the request took longer than {self.settings.request_seconds:g} seconds"
                return error_response(call, RequestError(503, msg, headers={"retry-after": "1"}))
            return error_response(call, refused(error, call, context))


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to an endpoint."""

    served: HttpService
    row: Row
    request: Request
    call: Call
    context: ServiceContext

    async def answer(self) -> ASGIApp:
        """Return the answer.

        Raises:
            RequestError: Something in the request is wrong.
            RetrievalError: As the function of the row.
        """
        row = self.row
        if row.writes:
            self._check_writing()
        given = await self._read()
        self._note_indexes(given)
        if row.endpoint is not None:
            return await row.endpoint(self, given)
        assert row.function is not None  # noqa: S101 - a row has one or the other
        work = row.function(self.context, given)
        result = await (work if row.writes else while_connected(self.request.receive, work))
        if isinstance(result, bytes):
            return Response(result, media_type=row.media)
        if isinstance(result, QueryContents):
            return json_response(self._enveloped(result))
        if isinstance(result, BaseModel):
            return json_response(result.model_dump(mode="json", exclude_none=True))
        return json_response(result)

    def _check_writing(self) -> None:
        if not self.served.allow_writes:
            raise RequestError(403, "this service only reads. Start it with --allow-writes to write")
        if self.context.tenant is None and not self.context.may_write:
            raise insufficient(WRITE, OAuth.of(self.served.settings))
        self.context.check_writing()

    async def _read(self) -> BaseModel:
        row, content = self.row, dict[str, Any]()
        if row.body:
            content = await read_object(self.request)
        if row.body == "all":
            if issubclass(row.request, SearchQuery):
                note_query(self.call, content)
        elif unknown := [name for name in content if name not in row.body]:
            raise RequestError(400, unknown_field(unknown[0], list(row.body)))
        known = list(row.parameters.values())
        if row.path.startswith("/v1/") and (
            unknown := [name for name in self.request.query_params if name not in known]
        ):
            raise RequestError(400, unknown_field(unknown[0], known, "parameter"))
        for name, shown in row.parameters.items():
            if (value := self._parameter(shown, row.schemas[name])) is not None:
                content[name] = value
        return read_arguments(content, row.request, row.parameters)

    def _parameter(self, name: str, schema: Mapping[str, Any]) -> Any:
        if name in self.request.path_params:
            return self.request.path_params[name]
        given = self.request.query_params.getlist(name)
        if schema.get("type") == "array":
            return given or None
        if len(given) > 1:
            raise RequestError(400, f"name one {name}, got {len(given)}")
        if not given:
            return None
        is_number = any(each.get("type") == "integer" for each in (schema, *schema.get("anyOf", ())))
        return number_or_text(given[0]) if is_number else given[0]

    def _note_indexes(self, given: BaseModel) -> None:
        if "index" not in type(given).model_fields:
            return
        index: str | None = getattr(given, "index")  # noqa: B009 - the models have no common class
        several: tuple[str, ...] | None = getattr(given, "indexes", None)
        self.call.served = tuple(self.context.index(name) for name in dict.fromkeys(several or (index,)))

    def _enveloped(self, found: QueryContents) -> dict[str, Any]:
        execution = self.call.execution(found.count, **found.facts)
        return {"query": self.call.query, "status": "success", **found.contents, "execution": execution, "errors": []}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An ASGI application for one path with all its methods."""

    served: HttpService
    rows: Mapping[str, Row]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        method = scope["method"]
        row = self.rows["GET" if method == "HEAD" else method]
        answer = await self.served.answer(row, Request(scope, receive, send))
        await answer(scope, receive, send)


class ExactRoute(Route):
    """A route that ends like the address as it was sent: an ID may end so too, with its slash percent-encoded."""

    def __init__(self, path: str, endpoint: Endpoint, methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        self._ending = path.rpartition("}")[2].encode() if "}" in path else b""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for this route."""
        match, child = super().matches(scope)
        if self._ending and match is not Match.NONE and not bytes(scope["raw_path"]).endswith(self._ending):
            return Match.NONE, {}
        return match, child
