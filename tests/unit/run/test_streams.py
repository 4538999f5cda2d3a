from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import InvalidParameterError, ServiceConnectionError
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import CircuitBreakers
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock

if TYPE_CHECKING:
    pass


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
