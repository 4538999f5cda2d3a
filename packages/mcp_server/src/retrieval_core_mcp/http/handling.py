"""How a request is handled: its row of the table of routes, its arguments, the function that answers, and errors."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from retrieval_core.compat.service import SearchQuery
from retrieval_core.service.service_context import ServiceContext, ServiceModel
from retrieval_core_mcp.http.arguments import note_query, number_or_text, read_arguments, unknown_field
from retrieval_core_mcp.http.bodies import read_object
from retrieval_core_mcp.http.clients import while_connected
from retrieval_core_mcp.http.envelope import RequestError, error_response, json_response
from retrieval_core_mcp.http.oauth import WRITE, OAuth, insufficient
from retrieval_core_mcp.http.problems import refused
from retrieval_core_mcp.http.search import QueryContents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from pydantic import BaseModel
    from starlette.types import ASGIApp, Receive, Scope, Send

    from retrieval_core.run.observe import Metrics
    from retrieval_core.service.served import ServedIndexes
    from retrieval_core_mcp.http.admission import Admission
    from retrieval_core_mcp.http.envelope import Call
    from retrieval_core_mcp.http.files import Files
    from retrieval_core_mcp.http.metrics import HttpMetrics
    from retrieval_core_mcp.http.settings import HttpSettings

JSON_TYPE = "application/json"
EVENTS = "text/event-stream"


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


@dataclass(frozen=True, slots=True)
class HttpService:
    """State that the endpoints share.

    Attributes:
        metrics: Those of the queries, which the indexes were opened with.
        allow_writes: Whether indexes may be changed.
        document: Returns the OpenAPI document.
        admission: Knows whether the process ends soon.
    """

    indexes: ServedIndexes
    settings: HttpSettings
    metrics: Metrics
    http_metrics: HttpMetrics
    files: Files
    allow_writes: bool
    document: Callable[[], dict[str, Any]]
    admission: Admission

    def routes(self, rows: Iterable[Row]) -> list[Route]:
        """Return the routes of rows: one per path, which knows all methods and so names them to other ones."""
        by_path: dict[str, dict[str, Row]] = defaultdict(dict)
        for row in rows:
            by_path[row.path][row.method] = row
        return [ExactRoute(path, Endpoint(self, each), methods=list(each)) for path, each in by_path.items()]

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
