"""The MCP server, independent of its transport."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, ListToolsResult

from retrieval_core_mcp import __version__, tools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from mcp.types import CallToolRequestParams, CallToolResult, PaginatedRequestParams

    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.library import Library
    from retrieval_core_mcp.settings import ServerSettings

INSTRUCTIONS = """\
Searches a collection of indexed documents. Use search to find passages that answer a question, and fetch to read more \
of a passage or document by its id. Cite the source of each passage that you use."""


def create_server(settings: ServerSettings, library: Library) -> Server[Library]:
    """Return a server with the tools ``search`` and ``fetch``, which speaks every version of the protocol.

    Args:
        library: Starts to load after the answer to the first request, and is closed when the server ends.
    """
    listed = ListToolsResult(tools=list(tools.list_tools(settings)))

    @asynccontextmanager
    async def lifespan(_server: Server[Library]) -> AsyncGenerator[Library]:
        try:
            yield library
        finally:
            await library.aclose()

    async def list_tools(
        _context: ServerRequestContext[Library], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return listed

    async def call_tool(context: ServerRequestContext[Library], params: CallToolRequestParams) -> CallToolResult:
        return await tools.call_tool(params.name, params.arguments or {}, library, settings, _condition(context))

    async def load_behind_first_answer(ctx: ServerRequestContext[Library, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/call":
            _check_call(ctx.params)
        try:
            return await call_next(ctx)
        finally:
            library.start()

    server = Server(
        "retrieval-core",
        version=__version__,
        title="retrieval-core",
        instructions=f"{INSTRUCTIONS} {settings.about}".rstrip(),
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.middleware.append(load_behind_first_answer)
    return server


def _condition(context: ServerRequestContext[Library]) -> Filter | None:
    """Return what every passage must pass: the state of a request over HTTP says so, where a tenant asks."""
    return getattr(getattr(context.request, "state", None), "condition", None)


def _check_call(params: Any) -> None:
    """Check a call's name and arguments, for better messages than the protocol library's.

    Raises:
        MCPError: The name is no text, or the arguments are no object.
    """
    given: dict[str, Any] = dict(params or {})
    if not isinstance(given.get("name"), str):
        raise MCPError(INVALID_PARAMS, "tools/call: name must be the name of a tool, search or fetch")
    if not isinstance(given.get("arguments"), (dict, type(None))):
        raise MCPError(INVALID_PARAMS, 'tools/call: arguments must be a JSON object, such as {"query": "..."}')
