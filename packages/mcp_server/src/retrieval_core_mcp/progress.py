"""Progress of a call: which stages of the pipeline have ended."""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.server.context import ServerRequestContext


T = TypeVar("T")


async def reporting(context: ServerRequestContext[Any], work: Callable[[Callable[[str], None]], Awaitable[T]]) -> T:
    """Do some work, and report each step of it, which reaches a client that has asked for progress.

    Args:
        work: Gets a function to call with the name of each step that ended, from any thread.
    """
    loop, home = asyncio.get_running_loop(), get_ident()
    steps: asyncio.Queue[str | None] = asyncio.Queue()

    def put(step: str) -> None:
        if get_ident() == home:  # waking the loop costs more than a step does
            steps.put_nowait(step)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(steps.put_nowait, step)

    async def send() -> None:
        done = 0
        while (step := await steps.get()) is not None:
            done += 1
            await context.session.report_progress(done, message=step)

    sending = asyncio.create_task(send())
    try:
        result = await work(put)
        loop.call_soon(steps.put_nowait, None)  # steps of other threads are on their way
        await sending
        return result
    finally:
        sending.cancel()
