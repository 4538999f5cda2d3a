"""Answers as server-sent events, which end with the client."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from retrieval_core_mcp.http.clients import while_connected
from retrieval_core_mcp.http.envelope import NobodyReadsError, to_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

HEARTBEAT_SECONDS = 15.0
"""How often a silent stream sends a comment, so that nothing on the way takes it for dead."""
_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


class EventStream:
    """An ASGI response: events as they happen, comments while nothing does, and no work for a client that has left.

    There is none either for a client that stays and does not read: a few of those could hold all places.

    Args:
        first: The first event, which has happened: what fails before is an answer of its own.
        events: Those that follow.
        failed: Returns the last event of a stream that is broken off, for what broke it.
    """

    def __init__(
        self,
        first: Mapping[str, Any],
        events: AsyncGenerator[Mapping[str, Any]],
        failed: Callable[[BaseException], Mapping[str, Any]],
    ) -> None:
        self._first = first
        self._events = events
        self._failed = failed

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        try:
            await while_connected(receive, self._send_all(send))
        except asyncio.CancelledError as error:  # the process ends
            await _send(send, self._failed(error))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            raise

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            await _send(send, self._first)
            following = asyncio.ensure_future(anext(events, None))
            try:
                while True:
                    done, _ = await asyncio.wait((following,), timeout=HEARTBEAT_SECONDS)
                    if not done:
                        await send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})
                        continue
                    event = following.result()
                    if event is None:
                        break
                    await _send(send, event)
                    following = asyncio.ensure_future(anext(events, None))
            except NobodyReadsError:
                raise
            except Exception as error:  # noqa: BLE001 - a stream that has begun can only say so in itself
                await _send(send, self._failed(error))
            finally:
                following.cancel()
                with suppress(asyncio.CancelledError, Exception):  # the events end before they are closed
                    await following
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send(send: Send, event: Mapping[str, Any]) -> None:
    body = b"event: %b\ndata: %b\n\n" % (str(event["type"]).encode(), to_json(event))
    await send({"type": "http.response.body", "body": body, "more_body": True})
