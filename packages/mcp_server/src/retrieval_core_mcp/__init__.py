"""The MCP server of retrieval-core: tools, resources and prompts by which assistants search, read and cite an index."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retrieval_core_mcp.server import create_server
    from retrieval_core_mcp.settings import ServerSettings, read_settings, serve_indexes
    from retrieval_core_mcp.stdio import serve_stdio

__version__ = "0.1.0"
__all__ = ["ServerSettings", "create_server", "read_settings", "serve_indexes", "serve_stdio"]

_HOMES = {
    "ServerSettings": "settings",
    "create_server": "server",
    "read_settings": "settings",
    "serve_indexes": "settings",
    "serve_stdio": "stdio",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the protocol's library is slow to import."""
    if (home := _HOMES.get(name)) is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{home}"), name)
