"""The limit of requests in a minute."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import ServiceConnectionError
from retrieval_core_mcp.http import rates
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.http.rates import MINUTE, RateLimit

if TYPE_CHECKING:
    from collections.abc import Sequence


class Shared:
    """Counts of several processes, which may fail."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self.is_lost = False
        self.is_silent = False

    async def load(self) -> None:
        pass

    async def count(self, key: str, by: int = 1, *, seconds: float) -> int:
        assert seconds >= 2 * MINUTE
        if self.is_silent:
            await asyncio.Event().wait()
        if self.is_lost:
            raise ServiceConnectionError("lost", "redis")
        self.of[key] = self.of.get(key, 0) + by
        return self.of[key]

    async def aclose(self) -> None:
        pass


async def is_accepted(limit: RateLimit, caller: str = "one") -> bool:
    return await seconds_to_wait(limit, caller) == 0


async def seconds_to_wait(limit: RateLimit, caller: str) -> int:
    """Send a request, and return what its refusal says; 0 if it is let in."""
    try:
        await limit.check(caller)
    except RequestError as error:
        return int(error.headers["retry-after"])
    return 0


@given(
    most=st.integers(1, 5),
    pauses=st.lists(st.floats(0, 90), min_size=1, max_size=40),
    processes=st.lists(st.integers(0, 2), min_size=40, max_size=40),
)
def test_no_minute_of_the_clock_has_more_than_the_limit(
    most: int, pauses: Sequence[float], processes: Sequence[int]
) -> None:
    """Whichever process is asked. A caller that sends nothing for two minutes has its whole limit again."""

    async def run() -> None:
        now, shared = 1e9, Shared()
        limits = [RateLimit(most, shared, lambda: now) for _ in range(3)]
        accepted: dict[int, int] = {}
        for pause, process in zip(pauses, processes, strict=False):
            now += pause
            minute = int(now // MINUTE)
            accepted[minute] = accepted.get(minute, 0) + await is_accepted(limits[process])
            assert accepted[minute] <= most
        now += 2 * MINUTE
        assert all([await is_accepted(limits[row % 3]) for row in range(most)])

    asyncio.run(run())


def test_waiting_as_told_is_enough() -> None:
    """A client that waits for the seconds in Retry-After is let in, and other callers always were."""

    async def run() -> None:
        now = 1e9
        limit = RateLimit(3, None, lambda: now)
        for _ in range(20):
            while await is_accepted(limit):
                pass
            assert await is_accepted(limit, f"another {now}")
            now += await seconds_to_wait(limit, "one")
            if not await is_accepted(limit):  # the minute has just begun: the last one counts nearly whole
                now += MINUTE / 3 + 1
                assert await is_accepted(limit)

    asyncio.run(run())


def test_while_the_server_fails_each_process_counts() -> None:
    async def run() -> None:
        shared = Shared()
        limits = [RateLimit(2, shared), RateLimit(2, shared)]
        shared.is_lost = True
        for limit in limits:
            assert [await is_accepted(limit) for _ in range(3)] == [True, True, False]

    asyncio.run(run())


def test_the_log_says_that_a_server_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The request is let in all the same, and the next ones don't wait."""
    monkeypatch.setattr(rates, "SERVER_SECONDS", 0.01)

    async def run() -> None:
        shared = Shared()
        shared.is_silent = True
        limit = RateLimit(2, shared)
        assert [await is_accepted(limit) for _ in range(3)] == [True, True, False]

    asyncio.run(run())
    (said,) = caplog.messages
    assert said.endswith("as the server of the cache fails: no answer within 0.01 s")
