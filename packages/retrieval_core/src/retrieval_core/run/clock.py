"""Time, as something that can be handed in: tests move it by hand instead of waiting."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


class Clock(Protocol):
    """Measures time and ends what takes too long."""

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
    """The real time."""

    def now(self) -> float:
        """Return the seconds of the system's monotonic clock."""
        return time.monotonic()

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Return :func:`asyncio.timeout`."""
        return asyncio.timeout(seconds)

    async def sleep(self, seconds: float) -> None:
        """Await :func:`asyncio.sleep`."""
        await asyncio.sleep(seconds)
