from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import InvalidParameterError, SearchError, ServiceConnectionError
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import CircuitBreakers
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.sync import events_of
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
