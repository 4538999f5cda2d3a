"""The service as an ASGI application, independent of what serves it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.routing import Route, Router

from retrieval_core.run.clock import SystemClock
from retrieval_core_mcp.http.admission import Admission
from retrieval_core_mcp.http.endpoints import Endpoints
from retrieval_core_mcp.http.gate import Gate
from retrieval_core_mcp.http.mcp import McpEndpoint
from retrieval_core_mcp.http.metrics import HttpMetrics
from retrieval_core_mcp.http.page_files import FILES, PAGE, Page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

    from mcp.server.lowlevel import Server
    from starlette.requests import Request
    from starlette.types import ASGIApp

    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Metrics
    from retrieval_core_mcp.http.indexes import ServedIndexes
    from retrieval_core_mcp.http.settings import HttpSettings


def create_app(
    indexes: ServedIndexes,
    settings: HttpSettings,
    metrics: Metrics,
    mcp: Server[Any],
    admission: Admission | None = None,
    *,
    allow_writes: bool = False,
    clock: Clock | None = None,
) -> Gate:
    """Return the service; it closes the indexes when it ends.

    Args:
        metrics: Those of the questions, which the indexes were opened with.
        mcp: Answers at ``/mcp``.
        admission: Bounds the requests; for who wants to end them.
        allow_writes: Whether documents may be written and removed.
        clock: Measures the age of an issuer's keys; by default the system's.

    Raises:
        ConfigurationError: The tokens cannot be used.
    """
    tokens = settings.known_tokens()
    admission = admission or Admission(settings.max_requests, settings.max_sessions)
    counted = HttpMetrics()
    to = Endpoints(indexes, settings, metrics, counted, allow_writes=allow_writes)
    endpoint = McpEndpoint(mcp, settings)
    page = Page()

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncGenerator[None]:
        for served in indexes:
            served.library.start()
        try:
            async with endpoint.run():
                yield
        finally:
            await indexes.aclose()

    async def documents(request: Request) -> ASGIApp:
        """Answer at the path's one route: that knows all methods, and so names them to who asks by another."""
        return await (to.change_documents if request.method in {"POST", "DELETE"} else to.documents)(request)

    routes = [
        Route("/v1/search", to.search, methods=["POST"]),
        Route("/v1/context", to.context, methods=["POST"]),
        Route("/v1/explain", to.explain, methods=["POST"]),
        Route("/v1/answer", to.answer, methods=["POST"]),
        Route("/v1/chunks/{chunk_id:path}/validate", to.validate, methods=["POST"]),
        Route("/v1/chunks/{chunk_id:path}/quote", to.quote, methods=["POST"]),
        Route("/v1/chunks/{chunk_id:path}/page", to.page, methods=["GET"]),
        Route("/v1/chunks/{chunk_id:path}/page.png", to.picture, methods=["GET"]),
        Route("/v1/chunks/{chunk_id:path}", to.chunk, methods=["GET"]),
        Route("/v1/indexes", to.indexes, methods=["GET"]),
        Route("/v1/indexes/{name}", to.index, methods=["GET"]),
        Route("/v1/indexes/{name}/fields", to.fields, methods=["GET"]),
        Route("/v1/documents", documents, methods=["GET", "POST", "DELETE"]),
        Route("/v1/suite-report", to.suite_report, methods=["GET"]),
        Route("/v1/files", to.files, methods=["POST"]),
        Route("/v1/documents/{document_id:path}", to.document, methods=["GET"]),
        Route("/healthz", to.healthz, methods=["GET"]),
        Route("/readyz", to.readyz, methods=["GET"]),
        Route("/metrics", to.metrics, methods=["GET"]),
        Route("/openapi.json", to.openapi, methods=["GET"]),
        Route("/mcp", endpoint, methods=["POST", "GET", "DELETE"]),
        Route(PAGE, page.give, methods=["GET"]),
        Route(FILES + "{name}", page.give, methods=["GET"]),
    ]
    router = Router(routes, redirect_slashes=False, lifespan=lifespan)
    return Gate(router, settings, tokens, admission, counted, clock=clock or SystemClock())
