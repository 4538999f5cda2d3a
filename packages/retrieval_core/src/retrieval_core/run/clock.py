"""The clock that everything is timed with; tests move theirs by hand instead of waiting."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


class Clock(Protocol):
    """A monotonic clock with time-outs and sleep."""

    def now(self) -> float:
        """Return seconds since some fixed moment; it never goes back."""
        ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Return a context that cancels its body after so many seconds and then raises :class:`TimeoutError`.

        With ``None`` the body may take for ever.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


class SystemClock:
    """The clock of :mod:`time` and :mod:`asyncio`."""

    now = staticmethod(time.monotonic)
    """As it is: it is asked more often than anything else."""

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Return :func:`asyncio.timeout`."""
        return asyncio.timeout(seconds)

    async def sleep(self, seconds: float) -> None:
        """Await :func:`asyncio.sleep`."""
        await asyncio.sleep(seconds)
