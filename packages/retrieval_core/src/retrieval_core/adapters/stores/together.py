"""Several requests to one service at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

CONCURRENT_REQUESTS = 4


async def together(calls: Iterable[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Make calls, a few at a time, and return their results in order; the first failure cancels the others."""
    few = asyncio.Semaphore(CONCURRENT_REQUESTS)

    async def make(call: Callable[[], Awaitable[Any]]) -> Any:
        async with few:
            return await call()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(make(call)) for call in calls]
    except ExceptionGroup as errors:
        failure = errors.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise failure
