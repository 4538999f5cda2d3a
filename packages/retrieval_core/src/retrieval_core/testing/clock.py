"""The fake clock, which tests move by hand."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class FakeClock:
    """A :class:`~retrieval_core.run.clock.Clock` that stands still until you advance it.

    It may be shared by several event loops, and advanced from any thread. Sleeping advances it at once.

    Attributes:
        slept: The seconds of each sleep so far, in order.
    """

    def __init__(self) -> None:
        self.slept: list[float] = []
        self._now = 0.0
        self._lock = Lock()
        self._open: dict[asyncio.Timeout, tuple[float, asyncio.AbstractEventLoop]] = {}

    def now(self) -> float:
        """Return the seconds that the clock was advanced by so far."""
        return self._now

    @asynccontextmanager
    async def timeout(self, seconds: float | None) -> AsyncGenerator[None]:
        """Cancel the body, and raise :class:`TimeoutError`, once the clock was advanced by ``seconds``."""
        async with asyncio.timeout(None) as scope:
            if seconds is None:
                yield
                return
            loop = asyncio.get_running_loop()
            with self._lock:
                self._open[scope] = (self._now + seconds, loop)
            if seconds <= 0:
                self._end([scope])
            try:
                yield
            finally:
                with self._lock:
                    self._open.pop(scope, None)

    async def sleep(self, seconds: float) -> None:
        """Advance the clock, and let other tasks run."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Advance the clock; bodies whose time is over are cancelled on their event loops.

        Raises:
            InvalidParameterError: The number is negative; time never goes back.
        """
        if seconds < 0:
            msg = f"seconds must be at least 0, got {seconds}"
            raise InvalidParameterError(msg)
        with self._lock:
            self._now += seconds
            over = [scope for scope, (end, _) in self._open.items() if end <= self._now]
        self._end(over)

    def _end(self, scopes: list[asyncio.Timeout]) -> None:
        for scope in scopes:
            with self._lock:
                end = self._open.pop(scope, None)
            if end is not None:
                end[1].call_soon_threadsafe(_expire, scope)


def _expire(scope: asyncio.Timeout) -> None:
    try:
        scope.reschedule(0)
    except RuntimeError:
        return  # the body ended in the meantime
