"""Clients that leave before their answer: nothing is done for them any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from starlette.types import Receive

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do a client's work, and end it when the client leaves.

    Args:
        receive: Of a request whose body was read.

    Raises:
        ClientDisconnect: The client has left.
        Exception: What the work raised.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        await ended(leaving)
        await ended(working)


async def disconnected(receive: Receive) -> None:
    """Wait until the client of a request has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def ended(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait until it has ended, whatever became of it."""
    task.cancel()
    with suppress(asyncio.CancelledError, Exception):
        await task
