"""The transport over standard input and output, one JSON document a line, with an answer to every request.

The transport of the protocol library drops lines that it can't decode, such as one with half of a surrogate pair. Its
sender then waits for ever. This one decodes more leniently, and answers invalid lines itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from retrieval_core_mcp.messages import read_message, short_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server.lowlevel import Server

logger = logging.getLogger(__name__)

GRACE = 0.5
"""Seconds that pending requests have for their answer, once the input has ended."""


@dataclass(slots=True)
class _Wire:
    """Both ends of the connection, and the requests that wait for an answer."""

    output: BinaryIO
    waiting: set[str | int] = field(default_factory=set[str | int])
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def asked(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self.waiting.add(message.id)
            self.idle.clear()
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))  # it will not be answered

    async def send(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCError):
            message = short_error(message)
        try:
            line = message.model_dump_json(by_alias=True, exclude_unset=True)
        except ValueError:
            logger.exception("an answer could not be written as JSON")
            failure = ErrorData(code=INTERNAL_ERROR, message="The answer could not be written as JSON.")
            line = JSONRPCError(jsonrpc="2.0", id=getattr(message, "id", None), error=failure).model_dump_json()
        await self.send_line(line)
        if isinstance(message, (JSONRPCResponse, JSONRPCError)):
            self._settle(message.id)

    async def send_line(self, line: str) -> None:
        async with self.turn:
            # A client that does not read must hold up this one message, and not the event loop.
            await asyncio.to_thread(_write, self.output, line.encode() + b"\n")

    def _settle(self, request_id: object) -> None:
        self.waiting = {waiting for waiting in self.waiting if waiting != request_id}
        if not self.waiting:
            self.idle.set()


async def serve_stdio(server: Server[Any], source: Iterable[bytes], output: BinaryIO) -> None:
    """Serve one client until its input ends.

    Pending requests then get :data:`GRACE` seconds, and after that an error.

    Args:
        source: Lines, read in a thread that this does not wait for.
        output: For messages; :func:`claim_standard_streams` returns both for a process.
    """
    inbound, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, outbound = anyio.create_memory_object_stream[SessionMessage](0)
    wire = _Wire(output)
    wire.idle.set()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, _lines_of(source), inbound, wire)
        tasks.start_soon(_transmit, outbound, wire)
        await server.run(read_stream, write_stream, server.create_initialization_options())
        tasks.cancel_scope.cancel()


def claim_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Return the process's input and output, replacing them by an empty input and standard error.

    So nothing that the process or its children print can break the protocol.
    """
    sys.stdout.flush()
    source, output = (os.fdopen(os.dup(number), mode) for number, mode in ((0, "rb"), (1, "wb")))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return cast("BinaryIO", source), cast("BinaryIO", output)


def _lines_of(source: Iterable[bytes]) -> MemoryObjectReceiveStream[bytes]:
    """Read lines in a thread of their own; a blocked read cannot be cancelled, so the process may end during it."""
    sender, receiver = anyio.create_memory_object_stream[bytes](0)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            for line in source:
                asyncio.run_coroutine_threadsafe(sender.send(line), loop).result()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, asyncio.CancelledError, OSError, ValueError):
            logger.debug("the input ended early", exc_info=True)
        finally:
            if not loop.is_closed():
                loop.call_soon_threadsafe(sender.close)

    Thread(target=read, name="mcp-stdin", daemon=True).start()
    return receiver


async def _receive(
    lines: MemoryObjectReceiveStream[bytes], inbound: MemoryObjectSendStream[SessionMessage | Exception], wire: _Wire
) -> None:
    async with inbound, lines:
        async for line in lines:
            if not line.strip():
                continue
            message = read_message(line)
            if isinstance(message, str):
                await wire.send_line(message)
                continue
            wire.asked(message)
            await inbound.send(SessionMessage(message))
        with anyio.move_on_after(GRACE):
            await wire.idle.wait()


async def _transmit(outbound: MemoryObjectReceiveStream[SessionMessage], wire: _Wire) -> None:
    async with outbound:
        async for message in outbound:
            await wire.send(message.message)


def _write(output: BinaryIO, line: bytes) -> None:
    try:
        output.write(line)
        output.flush()
    except (OSError, ValueError):  # the client is gone; the end of the input follows
        logger.debug("the output is closed", exc_info=True)
