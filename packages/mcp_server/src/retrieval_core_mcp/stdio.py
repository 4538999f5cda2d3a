"""The SDK's transport over standard input and output, with an answer to every line that it can't decode.

The SDK drops such lines, and their senders wait for ever. Real clients send two kinds of them. One is text that was cut
within an emoji, which leaves half of a surrogate pair; the other is a byte order mark before the first message.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from retrieval_core_mcp.fitting import clean

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

GRACE = 0.5
"""Seconds to answer pending requests after the input has ended, and again to close the indexes."""
NO_MESSAGE = 'The line is not a JSON-RPC 2.0 message: a JSON object with "jsonrpc": "2.0" and a method, and no batch.'


async def serve_stdio(
    server: Server[Any], stdin: anyio.AsyncFile[str] | None = None, stdout: anyio.AsyncFile[str] | None = None
) -> None:
    """Serve one client until its input ends.

    Pending requests then get :data:`GRACE` seconds, and after that an error.

    Args:
        stdin: Default: the standard input of the process, which is empty for everything else meanwhile.
        stdout: Default: the standard output of the process. Other output of the process and of its children goes to
            standard error meanwhile.
    """
    inbound, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outbound, answers = anyio.create_memory_object_stream[SessionMessage](0)
    pending: set[object] = set()
    async with stdio_server(stdin, stdout) as (lines, output), anyio.create_task_group() as tasks:

        async def receive() -> None:
            async with lines, inbound:
                async for line in lines:
                    item = _read_again(line) if isinstance(line, Exception) else line
                    if isinstance(item, JSONRPCError):
                        await output.send(SessionMessage(item))
                    elif item is not None:
                        if isinstance(item.message, JSONRPCRequest):
                            pending.add(item.message.id)
                        await inbound.send(item)
                with anyio.move_on_after(GRACE):
                    while pending:  # noqa: ASYNC110 - an event for each answer would cost more
                        await anyio.sleep(0.01)
                tasks.cancel_scope.deadline = anyio.current_time() + GRACE

        async def send() -> None:
            async with answers, output:
                async for answer in answers:
                    await output.send(answer)
                    pending.discard(getattr(answer.message, "id", None))

        tasks.start_soon(receive)
        tasks.start_soon(send)
        await server.run(messages, outbound, server.create_initialization_options())


def _read_again(problem: Exception) -> SessionMessage | JSONRPCError | None:
    """Return the message of a line that the SDK can't decode, or an error; ``None`` for a blank line."""
    code, request_id = INVALID_REQUEST, None
    for detail in problem.errors() if isinstance(problem, ValidationError) else ():
        given: Any = detail["input"]
        if detail["type"] == "json_invalid":
            if not given.strip():
                return None
            with suppress(ValueError, RecursionError):
                text = json.dumps(json.loads(given.removeprefix("\ufeff")), ensure_ascii=False)
                return SessionMessage(jsonrpc_message_adapter.validate_json(clean(text), by_name=False))
            code = PARSE_ERROR
        elif isinstance(given, dict) and type(found := cast("dict[str, Any]", given).get("id")) in {str, int}:
            request_id = found
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=NO_MESSAGE))
