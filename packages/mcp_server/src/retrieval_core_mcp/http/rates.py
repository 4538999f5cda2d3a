"""How many requests a caller may send in a minute, counted in this process or in all processes together."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Protocol

from retrieval_core.errors import RetrievalError
from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.config import RetrievalConfig

logger = logging.getLogger(__name__)

MINUTE = 60
SERVER_SECONDS = 0.5
"""Seconds that a request waits for the shared counts."""
PAUSE_SECONDS = 10.0
"""Seconds for which requests are counted in this process, after the shared counts failed."""


class Counts(Protocol):
    """Numbers that several processes add to."""

    async def load(self) -> None:
        """Load what the first call needs."""
        ...

    async def count(self, key: str, by: int = 1, *, seconds: float) -> int:
        """Add to a number, which is forgotten after so many seconds, and return it."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class RateLimit:
    """Refuses requests of callers that sent too many within the last minute.

    The last minute is estimated from the requests of this calendar minute, and a part of those of the one before. Only
    requests that were let in are counted.

    Args:
        most: Requests in a minute.
        shared: Counts of all processes. Without it, or while it fails, each process counts its own requests.
        now: Returns the time in seconds, as all processes have it.
    """

    def __init__(self, most: int, shared: Counts | None = None, now: Callable[[], float] = time.time) -> None:
        self._most = most
        self._shared = shared
        self._own = _OwnCounts()
        self._now = now
        self._failed_at = -PAUSE_SECONDS

    async def check(self, caller: str) -> None:
        """Count a request.

        Raises:
            RequestError: The caller has sent too many.
        """
        minute, passed = divmod(self._now(), MINUTE)
        key, former = f"{caller} {minute:.0f}", f"{caller} {minute - 1:.0f}"
        now, before = await self._count(key, former)
        weight = 1 - passed / MINUTE
        if now + before * weight <= self._most:
            return
        await self._count(key, None)
        later = MINUTE - passed if now > self._most else (now + before * weight - self._most) * MINUTE / before
        msg = f"too many requests: more than {self._most} in a minute. Try again later"
        raise RequestError(429, msg, headers={"retry-after": str(max(1, ceil(later)))})

    async def load(self) -> None:
        """Load the client of the shared counts, so that no request waits for that."""
        with suppress(RetrievalError):  # the first request reports it
            if self._shared is not None:
                await self._shared.load()

    async def aclose(self) -> None:
        """Close the connections to the shared counts."""
        if self._shared is not None:
            await self._shared.aclose()

    async def _count(self, key: str, former: str | None) -> tuple[int, int]:
        """Add a request and return the counts of both minutes; without a former one, take the request back."""
        if self._shared is not None and time.monotonic() - self._failed_at >= PAUSE_SECONDS:
            try:
                async with asyncio.timeout(SERVER_SECONDS):
                    return await _add(self._shared, key, former)
            except (RetrievalError, TimeoutError) as error:
                self._failed_at = time.monotonic()
                msg = (
                    "requests a minute are counted by this process only for %g s, as the server of the cache fails: %s"
                )
                reason = str(error) or f"no answer within {SERVER_SECONDS:g} s"
                logger.warning(msg, PAUSE_SECONDS, reason)
        return await _add(self._own, key, former)


def rate_limit(most: int | None, config: RetrievalConfig) -> RateLimit | None:
    """Return the limit that settings ask for; ``None`` without one.

    Args:
        most: Requests in a minute; ``None`` for any number.
        config: Its cache may name the server that counts.
    """
    if most is None:
        return None
    if not shares_cache(config):
        return RateLimit(most)
    from retrieval_core.adapters.caches.redis import RedisCache  # noqa: PLC0415 - for who has one

    url = config.cache.redis.url
    assert url is not None  # noqa: S101 - the settings of this kind need it
    return RateLimit(most, RedisCache(url))


def shares_cache(config: RetrievalConfig) -> bool:
    """Whether the result cache is on a server, so that several processes share it."""
    return config.cache.kind == "redis"


async def _add(counts: Counts, key: str, former: str | None) -> tuple[int, int]:
    if former is None:
        return await counts.count(key, -1, seconds=2 * MINUTE), 0
    now, before = await asyncio.gather(
        counts.count(key, seconds=2 * MINUTE), counts.count(former, 0, seconds=2 * MINUTE)
    )
    return now, before


class _OwnCounts:
    """Counts of this process, in the order in which they were last added to."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, float]] = {}

    async def load(self) -> None:
        pass

    async def count(self, key: str, by: int = 1, *, seconds: float) -> int:
        now = time.monotonic()
        while self._of and now > (oldest := next(iter(self._of.items())))[1][1]:
            del self._of[oldest[0]]
        number = self._of.pop(key, (0, 0.0))[0] + by
        self._of[key] = number, now + seconds
        return number

    async def aclose(self) -> None:
        pass
