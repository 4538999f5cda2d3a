"""Endpoints whose contract is not that of a function of the service."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import PlainTextResponse

from retrieval_core.errors import IndexNotFoundError, RetrievalError
from retrieval_core.index.serialization import event_to_json
from retrieval_core.service import contents
from retrieval_core.service.searching import SourcesRequest, answer_events, check_sources
from retrieval_core.types import AnswerDone
from retrieval_core_mcp.http.admission import ending
from retrieval_core_mcp.http.clients import while_connected
from retrieval_core_mcp.http.contract import collection_of
from retrieval_core_mcp.http.envelope import RequestError, json_response
from retrieval_core_mcp.http.problems import refused
from retrieval_core_mcp.http.reports import read_suite_report
from retrieval_core_mcp.http.search import answer_request
from retrieval_core_mcp.http.streaming import EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.types import ASGIApp

    from retrieval_core.service.searching import AnswerRequest
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.service.uploads import UploadRequest
    from retrieval_core.types import Citation, CitationCheck
    from retrieval_core_mcp.http.arguments import AnswerQuery
    from retrieval_core_mcp.http.handling import Asked

STRANGERS_SECONDS = 1.0
"""For how long those without a token get the same answer of a probe."""
SHUTTING_DOWN = "ShuttingDown"
"""The reason why a service that is shutting down is not ready."""


async def answer(asked: Asked, query: AnswerQuery) -> ASGIApp:
    """Answer a question with server-sent events."""

    async def events() -> AsyncGenerator[Mapping[str, Any]]:
        request = answer_request(query)
        async with aclosing(answer_events(asked.context, request)) as answering:
            async for event in answering:
                sources = event.answer.sources if isinstance(event, AnswerDone) else None
                checks = None if sources is None else await _checks(asked.context, request, sources)
                yield event_to_json(event, checks)

    following = events()

    async def begun() -> Mapping[str, Any]:
        return await anext(following)

    first = await while_connected(asked.request.receive, begun())

    def failed(error: BaseException) -> Mapping[str, Any]:
        is_ending = isinstance(error, asyncio.CancelledError)
        problem = ending() if is_ending else refused(error, asked.call, asked.context)
        return {"type": "error", "stage": "service", "error": type(error).__name__, "reason": problem.messages[0]}

    return EventStream(first, following, failed)


async def _checks(
    context: ServiceContext, request: AnswerRequest, sources: tuple[Citation, ...]
) -> tuple[CitationCheck, ...] | None:
    """Return the checks of an answer's sources against the index; ``None`` for a tenant, or if that fails."""
    if context.tenant is not None or not sources:
        return None if context.tenant is not None else ()
    indexes = request.indexes or (None if request.index is None else (request.index,))
    try:
        return await check_sources(context, SourcesRequest(sources=sources, indexes=indexes))
    except RetrievalError:
        return None


async def index_file(asked: Asked, upload: UploadRequest) -> ASGIApp:
    """Receive a file and index it, with server-sent events."""
    return await asked.served.files.take(asked.request, asked.call, asked.context, upload)


async def list_indexes(asked: Asked, _request: object) -> ASGIApp:
    """List the indexes, and what the caller may send."""
    context = asked.context
    writable = context.may_write and context.tenant is None
    files = {"files": asked.served.files.accepted()} if writable else {}
    listed = (await contents.list_indexes(context, contents.IndexesRequest())).indexes
    indexes = [collection_of(each).model_dump(mode="json") for each in listed]
    return json_response({"indexes": indexes, "writable": writable, **files})


async def suite_report(asked: Asked, _request: object) -> ASGIApp:
    """Return the report of a test suite; its queries and documents are those of all."""
    if asked.context.tenant is not None:
        raise RequestError(403, "a token of a tenant may not read the report, which is about all documents")
    report = await read_suite_report(asked.served.settings.suite_report, asked.context.redact)
    return json_response(report.model_dump(mode="json"))


async def health(_asked: Asked, _request: object) -> ASGIApp:
    """Report that the process lives."""
    return json_response({"status": "ok"})


async def readiness(asked: Asked, _request: object) -> ASGIApp:
    """Report whether every index can be searched, or made, and the process goes on.

    Strangers get no names and no errors.
    """
    if asked.served.admission.is_draining:
        problems = dict.fromkeys((served.name for served in asked.context.indexes), SHUTTING_DOWN)
    else:
        max_age = STRANGERS_SECONDS if asked.call.is_stranger else 0.0
        problems = {served.name: await served.problem(max_age=max_age) for served in asked.context.indexes}
    # An index that callers can make is ready for the first document: without that, no proxy would ever send one.
    fine = {None, IndexNotFoundError.__name__} if asked.served.allow_writes else {None}
    waiting = {name: problem for name, problem in problems.items() if problem not in fine}
    shown = {} if asked.call.is_stranger else waiting
    return json_response({"status": "waiting" if waiting else "ready", "waiting": shown}, 503 if waiting else 200)


async def metrics(asked: Asked, _request: object) -> ASGIApp:
    """Return the counters; a tenant may not see them, since everybody's queries are counted."""
    if asked.context.tenant is not None:
        raise RequestError(403, "a token of a tenant may not read the metrics, which are about all callers")
    text = asked.served.metrics.prometheus() + asked.served.http_metrics.prometheus()
    return PlainTextResponse(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})


async def openapi(asked: Asked, _request: object) -> ASGIApp:
    """Return the OpenAPI document."""
    return json_response(await asyncio.to_thread(asked.served.document))
