"""The service as an ASGI application, independent of what serves it."""

from __future__ import annotations

import asyncio
import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.routing import Route, Router

from retrieval_core.run.clock import SystemClock
from retrieval_core_mcp.http.admission import Admission
from retrieval_core_mcp.http.files import Files
from retrieval_core_mcp.http.gate import Gate
from retrieval_core_mcp.http.handling import HttpService
from retrieval_core_mcp.http.mcp import McpEndpoint
from retrieval_core_mcp.http.metrics import HttpMetrics
from retrieval_core_mcp.http.page_files import FILES, PAGE, show_page
from retrieval_core_mcp.http.routes import ROWS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Any

    from mcp.server.lowlevel import Server

    from retrieval_core.run.clock import Clock
    from retrieval_core.run.observe import Metrics
    from retrieval_core.service.served import ServedIndexes
    from retrieval_core_mcp.http.rates import RateLimit
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
    rate: RateLimit | None = None,
    is_warm: bool = False,
) -> Gate:
    """Return the service; it closes the indexes when it ends.

    Args:
        metrics: Those of the questions, which the indexes were opened with.
        mcp: Answers at ``/mcp``.
        admission: Bounds the requests; for who wants to end them.
        allow_writes: Whether documents may be written and removed.
        clock: Measures the age of an issuer's keys; by default the system's.
        rate: Bounds the requests of each token in a minute.
        is_warm: Whether it begins to answer when the models are loaded, or when that failed.

    Raises:
        ConfigurationError: The tokens cannot be used.
    """
    tokens = settings.known_tokens()
    admission = admission or Admission(settings.max_requests, settings.max_sessions)
    counted = HttpMetrics()
    service = HttpService(indexes, settings, metrics, counted, Files(settings), allow_writes, _document, admission)
    endpoint = McpEndpoint(mcp, settings)

    @asynccontextmanager
    async def lifespan(_app: object) -> AsyncGenerator[None]:
        for served in indexes:
            served.start()
        if rate is not None:
            await rate.load()
        freezing = asyncio.create_task(_freeze(indexes))
        if is_warm:
            await freezing
        try:
            async with endpoint.run():
                yield
        finally:
            freezing.cancel()
            await indexes.aclose()
            if rate is not None:
                await rate.aclose()

    routes = [
        *service.routes(ROWS),
        Route("/mcp", endpoint, methods=["POST", "GET", "DELETE"]),
        Route(PAGE, show_page, methods=["GET"]),
        Route(FILES + "{name}", show_page, methods=["GET"]),
    ]
    router = Router(routes, redirect_slashes=False, lifespan=lifespan)
    return Gate(router, settings, tokens, admission, counted, clock=clock or SystemClock(), rate=rate)


def _document() -> dict[str, Any]:
    from retrieval_core_mcp.http.openapi import document  # noqa: PLC0415 - for who asks for it

    return document()


async def _freeze(indexes: ServedIndexes) -> None:
    """Keep the garbage collector from walking over all modules and indexes again: requests wait meanwhile."""
    for served in indexes:
        await served.warmed_up()
    gc.freeze()
