"""Clients that leave before their answer: nothing is done for them any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

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
    await disconnected(receive)
    limit.reschedule(0)


async def disconnected(receive: Receive) -> None:
    """Wait until the client of a request has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def ended(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait until it has ended, whatever became of it."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
