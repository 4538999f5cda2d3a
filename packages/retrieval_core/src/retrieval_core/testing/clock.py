"""Time that a test moves by hand, so that deadlines can be tested without waiting."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class FakeClock:
    """A :class:`~retrieval_core.run.clock.Clock` that stands still until it is told to advance.

    It may be shared by several event loops, and advanced from any thread. Who sleeps makes it advance at once, so that
    retries need no waiting.

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
        """Cancel the body, and raise :class:`TimeoutError`, once the clock was advanced by so many seconds."""
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
        """Advance by so many seconds, and let others have a turn."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Let time pass; bodies whose time is over are cancelled as soon as their event loop has the turn.

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
