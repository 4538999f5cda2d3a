"""What the service does for each route."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, cast

from starlette.responses import PlainTextResponse, Response

from retrieval_core.compat.service import CollectionInfo, SearchQuery
from retrieval_core.errors import RetrievalError
from retrieval_core.index.serialization import chunk_to_json, event_to_json, pack_to_json
from retrieval_core.types import Document
from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.http.admission import ending
from retrieval_core_mcp.http.arguments import (
    AnswerQuery,
    ContextQuery,
    ExplainQuery,
    NewDocuments,
    QuoteToCheck,
    read_arguments,
    read_query,
)
from retrieval_core_mcp.http.bodies import read_object
from retrieval_core_mcp.http.clients import while_connected
from retrieval_core_mcp.http.envelope import RequestError, error_response, json_response
from retrieval_core_mcp.http.explain import explain
from retrieval_core_mcp.http.files import Files
from retrieval_core_mcp.http.oauth import WRITE, OAuth, insufficient
from retrieval_core_mcp.http.pages import LAST_PAGE, NARROWEST, WIDEST, picture_of_page, place_on_page
from retrieval_core_mcp.http.problems import incomplete, refused, result_shown, shown
from retrieval_core_mcp.http.reading import (
    LARGEST_OFFSET,
    MOST_CHARACTERS,
    MOST_DOCUMENTS,
    fields_of,
    list_documents,
    read_document,
)
from retrieval_core_mcp.http.reports import read_suite_report
from retrieval_core_mcp.http.search import search
from retrieval_core_mcp.http.streaming import EventStream
from retrieval_core_mcp.tenancy import narrowed, own_event, own_pack
from retrieval_core_mcp.tools.citation import check_quote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from retrieval_core.run.observe import Metrics
    from retrieval_core_mcp.http.envelope import Call
    from retrieval_core_mcp.http.indexes import ServedIndex, ServedIndexes
    from retrieval_core_mcp.http.metrics import HttpMetrics
    from retrieval_core_mcp.http.settings import HttpSettings

    Answers = Callable[["Endpoints", Request, Call], Awaitable[ASGIApp]]

logger = logging.getLogger(__name__)

MOST_REMOVED = 100
_WHOLE = re.compile(r"-?[0-9]{1,20}")


def _answered(answers: Answers, *, in_time: bool = True) -> Callable[[Endpoints, Request], Awaitable[ASGIApp]]:
    """Answer with an error of the contract, whatever goes wrong.

    Args:
        in_time: Whether the request has to be answered within ``request_seconds``; one whose body comes meanwhile has
            the time of that body.
    """

    @wraps(answers)
    async def endpoint(self: Endpoints, request: Request) -> ASGIApp:
        call: Call = request.state.call
        limit = asyncio.timeout(self.settings.request_seconds if in_time else None)
        try:
            async with limit:
                return await answers(self, request, call)
        except Exception as error:  # noqa: BLE001 - every request gets an answer
            if limit.expired():
                msg = f"the request took longer than {self.settings.request_seconds:g} seconds"
                return error_response(call, RequestError(503, msg, headers={"retry-after": "1"}))
            return error_response(call, refused(error, call.served, call.request_id))

    return endpoint


class Endpoints:
    """The handlers of all routes.

    Args:
        metrics: Those of the questions, which the indexes were opened with.
        allow_writes: Whether documents may be written and removed.
    """

    def __init__(
        self,
        indexes: ServedIndexes,
        settings: HttpSettings,
        metrics: Metrics,
        http_metrics: HttpMetrics,
        *,
        allow_writes: bool,
    ) -> None:
        self.settings = settings
        self._allow_writes = allow_writes
        self._indexes = indexes
        self._metrics = metrics
        self._http_metrics = http_metrics
        self._files = Files(settings)

    @_answered
    async def search(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``POST /v1/search``."""
        query = read_query(call, await self._body(request), SearchQuery)
        call.served = await self._indexes.for_query(query)
        return json_response(await while_connected(request.receive, search(call, query, call.served)))

    @_answered
    async def explain(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``POST /v1/explain``."""
        query = read_query(call, await self._body(request), ExplainQuery)
        call.served = await self._indexes.for_query(query)
        return json_response(await while_connected(request.receive, explain(call, query, call.served)))

    @_answered
    async def context(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``POST /v1/context``."""
        query = read_query(call, await self._body(request), ContextQuery)
        served = call.served = await self._indexes.for_query(query)
        pack = await while_connected(
            request.receive,
            served.engine.acontext(
                query.query_text,
                narrowed(query.filters, call.condition),
                max_tokens=query.max_tokens,
                **_options(query),
                **served.options,
            ),
        )
        if not pack.passages and pack.note in {entry.reason for entry in pack.degraded}:
            raise incomplete(pack.note or "", served)
        told = result_shown(pack_to_json(pack if call.condition is None else own_pack(pack)), served)
        execution = call.execution(len(pack.citations))
        return json_response({"query": call.query, "status": "success", **told, "execution": execution, "errors": []})

    @_answered
    async def answer(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``POST /v1/answer`` with events."""
        query = read_query(call, await self._body(request), AnswerQuery)
        served = call.served = await self._indexes.for_query(query)
        events = served.engine.aanswer_stream(
            query.query_text,
            narrowed(query.filters, call.condition),
            max_tokens=query.max_tokens,
            verify=query.verify,
            **_options(query),
            **served.options,
        )

        async def told() -> AsyncGenerator[Mapping[str, Any]]:
            try:
                async for event in events:
                    shown = event if call.condition is None else own_event(event)
                    yield _scrubbed(event_to_json(shown), served)
            finally:
                await events.aclose()

        following = told()

        async def begun() -> Mapping[str, Any]:
            return await anext(following)

        first = await while_connected(request.receive, begun())

        def failed(error: BaseException) -> Mapping[str, Any]:
            problem = ending() if isinstance(error, asyncio.CancelledError) else refused(error, served, call.request_id)  # pyright: ignore[reportArgumentType]
            return {"type": "error", "stage": "service", "error": type(error).__name__, "reason": problem.messages[0]}

        return EventStream(first, following, failed)

    @_answered
    async def chunk(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/chunks/{id}``."""
        return await self._chunk(request, call, request.path_params["chunk_id"])

    async def _chunk(self, request: Request, call: Call, chunk_id: str) -> ASGIApp:
        served = call.served = self._indexes.named(_parameter(request, "index"))
        chunk = await served.chunk(chunk_id, call.condition)
        told = chunk_to_json(chunk)
        return json_response({"text": told.pop("text"), "metadata": served.metadata(chunk), "fields": told})

    @_answered
    async def validate(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``POST /v1/chunks/{id}/validate``."""
        served = call.served = self._indexes.named(_parameter(request, "index"))
        chunk = await served.chunk(request.path_params["chunk_id"], call.condition)
        return json_response((await served.validate(chunk)).model_dump(mode="json"))

    @_answered
    async def quote(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``POST /v1/chunks/{id}/quote``."""
        given = read_arguments(await self._body(request), QuoteToCheck)
        served = call.served = self._indexes.named(_parameter(request, "index"))
        chunk = await served.chunk(request.path_params["chunk_id"], call.condition)
        found = await check_quote(served.library, chunk.id, given.quote, call.condition)
        if found.verdict == "gone":
            raise RequestError(404, f"Chunk {chunk.id} not found")
        told = found.model_dump(mode="json", exclude_none=True, exclude={"place"})
        return json_response({**told, "file_changed": bool(found.file_changed)})

    @_answered
    async def page(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/chunks/{id}/page``."""
        chunk_id = request.path_params["chunk_id"]
        if not _ends_with(request, "/page"):
            return await self._chunk(request, call, f"{chunk_id}/page")
        served = call.served = self._indexes.named(_parameter(request, "index"))
        return json_response(await place_on_page(served, call.condition, chunk_id, _page(request)))

    @_answered
    async def picture(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/chunks/{id}/page.png``."""
        chunk_id = request.path_params["chunk_id"]
        if not _ends_with(request, "/page.png"):
            return await self._chunk(request, call, f"{chunk_id}/page.png")
        served = call.served = self._indexes.named(_parameter(request, "index"))
        width = _number(request, "width", NARROWEST, WIDEST, 1_000)
        picture = await picture_of_page(served, call.condition, chunk_id, width, _page(request))
        return Response(picture, media_type="image/png")

    @_answered
    async def indexes(self, _request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/indexes``; an index that cannot be read is there too, in red."""
        infos: list[dict[str, Any]] = []
        for served in self._indexes:
            call.served = served
            try:
                info = await _info(served, call)
            except RetrievalError as error:
                logger.warning("the index %s cannot be read: %s", served.name, error)
                info = _about(served, 0, 0, "red")
            infos.append(info.model_dump(mode="json"))
        writable = self._allow_writes and call.condition is None and call.may_write
        files = {"files": self._files.accepted()} if writable else {}
        return json_response({"indexes": infos, "writable": writable, **files})

    @_answered
    async def index(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/indexes/{name}``."""
        served = call.served = self._indexes.named(request.path_params["name"])
        return json_response((await _info(served, call)).model_dump(mode="json"))

    @_answered
    async def fields(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/indexes/{name}/fields``."""
        served = call.served = self._indexes.named(request.path_params["name"])
        return json_response(await fields_of(served, call.condition))

    @_answered
    async def documents(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/documents``."""
        served = call.served = self._indexes.named(_parameter(request, "index"))
        limit = _number(request, "limit", 1, MOST_DOCUMENTS, 100)
        cursor, name = _parameter(request, "cursor"), _parameter(request, "name")
        return json_response(await list_documents(served, call.condition, cursor, limit, name))

    @_answered
    async def document(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/documents/{id}``."""
        served = call.served = self._indexes.named(_parameter(request, "index"))
        offset = _number(request, "offset", 0, LARGEST_OFFSET, 0)
        limit = _number(request, "limit", 1, MOST_CHARACTERS, 50_000)
        document_id = request.path_params["document_id"]
        return json_response(await read_document(served, call.condition, document_id, offset, limit))

    @_answered
    async def change_documents(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``POST /v1/documents`` and ``DELETE /v1/documents``."""
        self._check_writing(call)
        return await (self._write if request.method == "POST" else self._remove)(request, call)

    @partial(_answered, in_time=False)
    async def files(self, request: Request, call: Call) -> ASGIApp:
        """Answer ``POST /v1/files`` with events."""
        self._check_writing(call)
        served = call.served = self._indexes.named(_parameter(request, "index"))
        return await self._files.take(request, call, served, _parameter(request, "name"))

    def _check_writing(self, call: Call) -> None:
        if not self._allow_writes:
            raise RequestError(403, "this service only reads; start it with --allow-writes to write through it")
        if call.condition is not None:
            raise RequestError(403, "a token of a tenant only reads")
        if not call.may_write:
            raise insufficient(WRITE, OAuth.of(self.settings))

    async def _write(self, request: Request, call: Call) -> ASGIApp:
        given = read_arguments(await self._body(request), NewDocuments)
        served = call.served = self._indexes.named(given.index)
        documents = {
            new.id: Document(
                new.id,
                new.text,
                source=new.source or new.id,
                content_hash="",
                title=new.title,
                timestamp=new.timestamp,
                metadata=new.metadata,
            )
            for new in given.documents
        }
        await served.index.aadd_documents(documents.values())
        return json_response({"written": list(documents)})

    async def _remove(self, request: Request, call: Call) -> ASGIApp:
        served = call.served = self._indexes.named(_parameter(request, "index"))
        ids = request.query_params.getlist("id")
        if not 1 <= len(ids) <= MOST_REMOVED:
            raise RequestError(400, f"name 1 to {MOST_REMOVED:,} documents, as ?id=FIRST&id=SECOND")
        removed = {document_id: await served.index.adelete(document_id) for document_id in dict.fromkeys(ids)}
        return json_response({"removed_chunks": removed})

    @_answered
    async def suite_report(self, _request: Request, call: Call) -> ASGIApp:
        """Answer ``GET /v1/suite-report``; its questions and documents are those of all."""
        if call.condition is not None:
            raise RequestError(403, "a token of a tenant may not see what is found in all documents")
        return json_response(await read_suite_report(self.settings.suite_report, self._indexes.named(None)))

    async def healthz(self, _request: Request) -> Response:
        """Answer ``GET /healthz``: the process lives."""
        return json_response({"status": "ok"})

    async def readyz(self, _request: Request) -> Response:
        """Answer ``GET /readyz``: every index can be searched."""
        problems = {served.name: await served.problem() for served in self._indexes}
        waiting = {name: problem for name, problem in problems.items() if problem is not None}
        return json_response({"status": "waiting" if waiting else "ready", "waiting": waiting}, 503 if waiting else 200)

    async def metrics(self, request: Request) -> Response:
        """Answer ``GET /metrics``; a tenant's token may not, since everybody's questions are counted."""
        call: Call = request.state.call
        if call.condition is not None:
            return error_response(call, RequestError(403, "a token of a tenant may not see what all others do"))
        text = self._metrics.prometheus() + self._http_metrics.prometheus()
        return PlainTextResponse(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def openapi(self, _request: Request) -> Response:
        """Answer ``GET /openapi.json``."""
        return json_response(await asyncio.to_thread(_openapi))

    async def _body(self, request: Request) -> dict[str, Any]:
        return await read_object(request, self.settings.max_body_bytes)


def _openapi() -> dict[str, Any]:
    from retrieval_core_mcp.http.openapi import document  # noqa: PLC0415 - for who asks for it

    return document()


def _options(query: ContextQuery) -> dict[str, Any]:
    own = "top_k" in query.model_fields_set
    threshold = query.similarity_threshold or None
    return {
        "top_k": query.top_k if own else None,
        "mode": query.mode,
        "history": query.history,
        "score_threshold": threshold,
    }


async def _info(served: ServedIndex, call: Call) -> CollectionInfo:
    """Return what an index holds; for a tenant, only what is its own is counted."""
    told = await served.index.adescribe()
    if told.collection is not None and call.condition is None:
        state = told.collection
        return CollectionInfo(
            name=served.name,
            vector_size=state.vector_size,
            distance_metric=cast("Any", state.distance),
            points_count=state.points,
            indexed_vectors_count=state.indexed_vectors,
            status=state.status,
        )
    manifest = told.manifest
    size = 0 if manifest is None or manifest.dimension is None else manifest.dimension
    count = told.chunks if call.condition is None else await served.count(call.condition)
    waiting = told.unembedded
    if waiting and call.condition is not None:
        waiting = await served.unembedded(call.condition, size)
    return _about(served, size, count, "yellow" if waiting else "green", waiting)


def _about(
    served: ServedIndex, size: int, count: int, status: Literal["green", "yellow", "red"], waiting: int = 0
) -> CollectionInfo:
    return CollectionInfo(
        name=served.name,
        vector_size=size,
        distance_metric="Cosine",
        points_count=count,
        indexed_vectors_count=max(0, count - waiting) if size else 0,
        status=status,
    )


def _parameter(request: Request, name: str) -> str | None:
    given = request.query_params.getlist(name)
    if len(given) > 1:
        raise RequestError(400, f"name one {name}, got {len(given)}")
    return given[0] if given else None


def _ends_with(request: Request, ending: str) -> bool:
    """Whether a path ends so before it is decoded: an id may end so too, with its slash percent-encoded."""
    return bytes(request.scope["raw_path"]).endswith(ending.encode())


def _number(request: Request, name: str, least: int, most: int, default: int) -> int:
    """Return a whole number of the query.

    Raises:
        RequestError: It is none, or out of its range.
    """
    given = _parameter(request, name)
    if given is None:
        return default
    if _WHOLE.fullmatch(given) is None or not least <= int(given) <= most:
        raise RequestError(
            400, f"{name} must be a whole number from {least:,} to {most:,}, got {in_one_line(given, 40)}"
        )
    return int(given)


def _page(request: Request) -> int | None:
    return _number(request, "page", 1, LAST_PAGE, 0) or None


def _scrubbed(event: dict[str, Any], served: ServedIndex) -> dict[str, Any]:
    """Return an event without paths of this machine in what failed."""
    if isinstance(event.get("reason"), str):
        event["reason"] = shown(event["reason"], served)
    if "answer" in event:
        event["answer"] = result_shown(event["answer"], served)
    return event
