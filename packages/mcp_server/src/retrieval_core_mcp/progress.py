"""Progress of a call: which stages of the pipeline have ended."""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.server.context import ServerRequestContext

    from retrieval_core.service.service_context import OnStep


T = TypeVar("T")


async def reporting(context: ServerRequestContext[Any], work: Callable[[OnStep], Awaitable[T]]) -> T:
    """Do some work, and report each step of it, which reaches a client that has asked for progress.

    Args:
        work: Gets a function to call with each step that ended, from any thread.
    """
    loop, home = asyncio.get_running_loop(), get_ident()
    steps: asyncio.Queue[tuple[str, int, int] | None] = asyncio.Queue()

    def put(message: str, done: int = 0, total: int = 0) -> None:
        step = (message, done, total)
        if get_ident() == home:  # waking the loop costs more than a step does
            steps.put_nowait(step)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(steps.put_nowait, step)

    async def send() -> None:
        last = 0
        while (step := await steps.get()) is not None:
            message, done, total = step
            if total and done <= last:  # the protocol wants it to increase
                continue
            last = done if total else last + 1
            await context.session.report_progress(last, total or None, message)

    sending = asyncio.create_task(send())
    try:
        result = await work(put)
        loop.call_soon(steps.put_nowait, None)  # steps of other threads are on their way
        await sending
        return result
    finally:
        sending.cancel()
