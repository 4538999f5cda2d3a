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
