"""Tokens of the lists of tools of MCP servers: what every conversation pays before anything is asked.

    python benchmarks/tool_lists.py 'retrieval-mcp --index FILE' 'npx -y @upstash/context7-mcp' ...

Starts each command over standard input and output, and prints the characters of each tool as JSON, those of the
instructions, and the sum in tokens of four characters.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import shlex
import sys

from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp import Client


async def measured(command: str) -> str:
    """Return a line with the sizes of a server's tools and instructions."""
    program, *arguments = shlex.split(command)
    started = StdioServerParameters(command=program, args=arguments, env=dict(os.environ))
    async with Client(stdio_client(started), mode="legacy") as client:
        tools = (await client.list_tools()).tools
        instructions = len(client.instructions or "")
    sizes = {
        tool.name: len(
            json.dumps(tool.model_dump(mode="json", by_alias=True, exclude_none=True), separators=(",", ":"))
        )
        for tool in tools
    }
    each = ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    tokens = math.ceil((sum(sizes.values()) + instructions) / 4)
    return f"{tokens:,} tokens: {each}; instructions {instructions:,} characters: {command}"


def main() -> None:
    """Measure each command that was given."""
    for command in sys.argv[1:]:
        print(asyncio.run(measured(command)))


if __name__ == "__main__":
    main()
