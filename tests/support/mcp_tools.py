"""Calls of all tools on an index with a fake embedder, checked by the protocol library's own client."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp import Client
from retrieval_core.service.served import ServedIndexes
from retrieval_core_mcp import ServerSettings, create_server


def asked(indexes: ServedIndexes, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """Return the answers to some calls; the client checks them against the tools' schemas."""
    settings = ServerSettings(retrieval=indexes.named(None).config, tools=("all",), structured=True)

    async def conversation() -> list[Any]:
        async with Client(create_server(settings, indexes)) as client:
            await client.list_tools()
            return [await client.call_tool(tool, arguments) for tool, arguments in calls]

    return asyncio.run(conversation())


def one(indexes: ServedIndexes, tool: str, **arguments: Any) -> Any:
    (answer,) = asked(indexes, (tool, arguments))
    return answer
