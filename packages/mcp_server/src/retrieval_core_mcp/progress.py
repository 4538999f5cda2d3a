"""Progress of a call: which stages of the pipeline have ended."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from contextlib import AbstractContextManager

    from mcp.server.context import ServerRequestContext

    from retrieval_core.types import RetrievalResult, StageRecord

T = TypeVar("T")

TOLD_AFTER = 0.05
"""Seconds after which a call begins to tell its steps, as they end."""


class StageProgress:
    """An observer of a pipeline that tells whoever asked which stages have ended."""

    def __init__(self) -> None:
        self._listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)

    @contextmanager
    def listening(self, listener: Callable[[str], None]) -> Generator[None]:
        """Tell a function of the stages of what is asked in this context."""
        token = self._listener.set(listener)
        try:
            yield
        finally:
            self._listener.reset(token)

    @contextmanager
    def span(self, stage: str) -> Generator[_Span]:
        """Return a context that is open while a stage's call runs."""
        yield _Span(stage, self._listener.get())

    def query(self) -> AbstractContextManager[None]:
        """Return a context that is open while a query is answered."""
        return nullcontext()

    def answered(self, result: RetrievalResult) -> None:
        """Take the result of a query."""


class _Span:
    def __init__(self, stage: str, listener: Callable[[str], None] | None) -> None:
        self._stage = stage
        self._listener = listener

    def end(self, record: StageRecord, error: Exception | None = None) -> None:  # noqa: ARG002 - as observers have it
        if self._listener is not None:
            self._listener(self._stage)


async def reporting(context: ServerRequestContext[Any], work: Callable[[Callable[[str], None]], Awaitable[T]]) -> T:
    """Do some work, and report the steps of it that have ended, which reaches a client that has asked for that.

    Args:
        work: Is given a function to call with the name of each step, from any thread.
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

    sending: list[asyncio.Task[None]] = []
    # Most calls have ended by then, and tell all at their end; a task that waits for each step would cost them more.
    timer = loop.call_later(TOLD_AFTER, lambda: sending.append(loop.create_task(send())))
    try:
        result = await work(put)
        await asyncio.sleep(0)  # steps of other threads are on their way
        timer.cancel()
        steps.put_nowait(None)
        await (sending[0] if sending else send())
        return result
    finally:
        timer.cancel()
        for task in sending:
            task.cancel()
