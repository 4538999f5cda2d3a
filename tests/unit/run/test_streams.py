from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import InvalidParameterError, SearchError, ServiceConnectionError
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import CircuitBreakers, RetryPolicy
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.sync import SyncBridge, events_of, in_step
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool("test-streams", threads=1)
    yield pool
    pool.close()


async def count(tell: Callable[[int], None], numbers: int = 3) -> None:
    for number in range(numbers):
        tell(number)
        await asyncio.sleep(0)


def test_events_come_in_order() -> None:
    """What the work tells comes out in its order, and the end of the work is the end of the stream."""

    async def main() -> list[int]:
        return [event async for event in events_of(count)]

    assert asyncio.run(main()) == [0, 1, 2]


def test_an_error_comes_behind_the_events() -> None:
    """What the work raises is raised to the listener, after everything that it had told."""
    heard: list[int] = []

    async def work(tell: Callable[[int], None]) -> None:
        await count(tell)
        msg = "out of order"
        raise SearchError(msg)

    async def main() -> None:
        async for event in events_of(work):
            heard.append(event)  # noqa: PERF401 - what was heard before the error counts

    with pytest.raises(SearchError, match="out of order"):
        asyncio.run(main())
    assert heard == [0, 1, 2]


def test_who_leaves_ends_the_work() -> None:
    """Closing the stream cancels the work, and waits until it has cleaned up."""
    ended: list[str] = []

    async def work(tell: Callable[[int], None]) -> None:
        tell(1)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    async def main() -> None:
        events = events_of(work)
        assert await anext(events) == 1
        await events.aclose()
        assert ended == ["cleaned up"]

    asyncio.run(main())


def test_who_is_cancelled_ends_the_work() -> None:
    """A listener that is cancelled while it waits takes the work along."""
    ended = asyncio.Event()

    async def work(_tell: Callable[[int], None]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def main() -> None:
        async def listen() -> None:
            async for _ in events_of(work):
                pass

        task = asyncio.create_task(listen())
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()

    asyncio.run(main())


def test_a_stream_in_synchronous_code() -> None:
    """A generator gives the same events; leaving it early ends the work."""
    bridge = SyncBridge()
    ended: list[bool] = []

    async def endless(tell: Callable[[int], None]) -> None:
        try:
            await count(tell, 1000)
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    try:
        assert list(in_step(bridge, events_of(count))) == [0, 1, 2]
        events = in_step(bridge, events_of(endless))
        assert [next(events), next(events)] == [0, 1]
        events.close()
        assert ended == [True]
    finally:
        bridge.close()


def test_what_has_begun_is_not_begun_again(pool: ThreadPool) -> None:
    """A call of which something was used is not made again, and its own error is what is told."""
    used: list[int] = []
    lost = ServiceConnectionError("gone in the middle")

    async def stream() -> None:
        used.append(1)
        raise lost

    run = Run(pool, clock=FakeClock(), guard=Guard(RetryPolicy(max_retries=3)))
    outcome = asyncio.run(run.once_begun(lambda: bool(used)).call("answer", stream))
    assert isinstance(outcome, Failed)
    assert outcome.error is lost
    assert (outcome.attempts, used) == (1, [1])


def test_what_has_not_begun_is_tried_again(pool: ThreadPool) -> None:
    """As long as nothing was used attempts are made as ever, and the first that begins is the last."""
    used: list[int] = []
    attempts: list[int] = []

    async def stream() -> None:
        attempts.append(1)
        if len(attempts) == 3:
            used.append(1)
        msg = "refused"
        raise ServiceConnectionError(msg)

    run = Run(pool, clock=FakeClock(), guard=Guard(RetryPolicy(max_retries=5)))
    outcome = asyncio.run(run.once_begun(lambda: bool(used)).call("answer", stream))
    assert isinstance(outcome, Failed)
    assert outcome.attempts == 3
    assert isinstance(outcome.error, ServiceConnectionError)


def test_a_stream_that_breaks_off_counts_for_the_breaker(pool: ThreadPool) -> None:
    """A backend that is lost in the middle of an answer was lost."""
    breakers = CircuitBreakers(failures=1, pause=30)

    async def stream() -> None:
        msg = "gone"
        raise ServiceConnectionError(msg)

    async def main() -> Failed:
        run = Run(pool, clock=FakeClock(), guard=Guard(breakers=breakers))
        await run.once_begun(lambda: True).call("answer", stream)
        outcome = await run.call("answer", stream)
        assert isinstance(outcome, Failed)
        return outcome

    assert asyncio.run(main()).attempts == 0


def test_an_error_of_the_library_becomes_an_outcome(pool: ThreadPool) -> None:
    """What something made of calls raises is a value, and so is what it gives; a bug in it stays one."""

    async def main() -> None:
        run = Run(pool, clock=FakeClock())

        async def give(value: int) -> int:
            return value

        async def refuse() -> None:
            msg = "no"
            raise InvalidParameterError(msg)

        async def break_down() -> None:
            raise ZeroDivisionError

        assert await run.settle("search", give, 3) == Ok(3)
        refused = await run.settle("search", refuse)
        assert isinstance(refused, Failed)
        assert (refused.stage, refused.reason) == ("search", "no")
        with pytest.raises(ZeroDivisionError):
            await run.settle("search", break_down)
        assert run.records == ()

    asyncio.run(main())


def test_a_part_with_a_time_of_its_own(pool: ThreadPool) -> None:
    """A part that begins afresh shares out its part of what is left, and leaves the rest to the whole."""
    clock = FakeClock()
    run = Run(pool, seconds=30, clock=clock)
    clock.advance(10)
    part = run.afresh(0.5)
    assert (part.seconds, part.elapsed_ms) == (10, 0)
    clock.advance(6)
    assert part.until(0.5).is_over
    assert not part.is_over
    clock.advance(4)
    assert part.is_over
    assert not run.is_over
    assert Run(pool, clock=clock).afresh(0.5).seconds is None
    clock.advance(100)
    assert run.afresh(0.5).seconds == 0
