"""End the work for clients that leave before their answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import Receive

T = TypeVar("T")

WATCH_AFTER = 0.1
"""Seconds after which work is ended if its client leaves; most work is done before, and needs no task that watches."""


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Do a client's work, and end it when the client leaves.

    Args:
        receive: Of a request whose body was read.

    Raises:
        ClientDisconnect: The client has left.
        Exception: What the work raised.
    """
    limit = asyncio.timeout(None)
    watching: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watching
        watching = asyncio.create_task(_end_when_left(receive, limit))

    try:
        async with limit:
            timer = asyncio.get_running_loop().call_later(WATCH_AFTER, watch)
            try:
                return await work
            finally:
                timer.cancel()
                if watching is not None:
                    watching.cancel()
    except TimeoutError:
        if limit.expired():
            raise ClientDisconnect from None
        raise


async def _end_when_left(receive: Receive, limit: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    limit.reschedule(0)
