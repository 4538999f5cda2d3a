"""Connections without a request under way: how long they may wait for one, and how many may."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send


class WaitingConnections:
    """Closes connections that wait too long for the headers of a request, or for their client to read an answer.

    Bytes that a client sends do not extend the time. Bytes that it reads do.

    Args:
        seconds: How long a connection may wait.
        most: How many may wait; for one more, the one that has waited longest is closed.
    """

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._waiting: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    def add(self, transport: asyncio.Transport, unread: float = inf) -> None:
        """Wait for a connection's next request.

        Args:
            transport: Of the connection.
            unread: Bytes that its client had not read before.
        """
        if len(self._waiting) >= self._most:
            oldest = next(iter(self._waiting))
            self.remove(oldest)
            oldest.abort()
        loop = asyncio.get_running_loop()
        self._waiting[transport] = loop.call_later(self._seconds, self._end, transport, unread)

    def remove(self, transport: asyncio.Transport) -> None:
        """Wait no longer: a request has come, or the connection is closed."""
        if (timer := self._waiting.pop(transport, None)) is not None:
            timer.cancel()

    def _end(self, transport: asyncio.Transport, before: float) -> None:
        del self._waiting[transport]
        if 0 < (unread := transport.get_write_buffer_size()) < before:
            self.add(transport, unread)
        else:
            transport.abort()


def protocol_of(waiting: WaitingConnections) -> type[H11Protocol]:
    """Return the protocol of connections that wait for their requests among others."""

    class Protocol(H11Protocol):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            self._requests = 0
            self._is_lost = False
            self.app: Any = self._counting(self.app)

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            waiting.add(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            self._is_lost = True
            waiting.remove(self.transport)
            super().connection_lost(exc)

        def _counting(self, app: Any) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
            async def counted(scope: Scope, receive: Receive, send: Send) -> None:
                self._requests += 1
                waiting.remove(self.transport)
                try:
                    await app(scope, receive, send)
                finally:
                    self._requests -= 1
                    if not self._requests and not self._is_lost:
                        waiting.add(self.transport)

            return counted

    return Protocol
