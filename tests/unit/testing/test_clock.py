from __future__ import annotations

import asyncio
import threading

import pytest

from retrieval_core.errors import InvalidParameterError
from retrieval_core.testing.clock import FakeClock


async def hang() -> None:
    await asyncio.Event().wait()


def test_time_stands_still_until_it_is_moved() -> None:
    """Only ``advance`` moves the clock, and never backwards."""
    clock = FakeClock()
    assert clock.now() == clock.now() == 0.0
    clock.advance(1.5)
    clock.advance(0)
    assert clock.now() == 1.5
    with pytest.raises(InvalidParameterError, match="-1"):
        clock.advance(-1)


def test_a_body_ends_when_its_time_is_over() -> None:
    """Advancing to the end of a timeout cancels its body, which becomes a TimeoutError."""

    async def main() -> list[str]:
        clock, events = FakeClock(), list[str]()

        async def limited(name: str, seconds: float) -> None:
            try:
                async with clock.timeout(seconds):
                    await hang()
            except TimeoutError:
                events.append(name)

        short, long = asyncio.create_task(limited("short", 1)), asyncio.create_task(limited("long", 2))
        await asyncio.sleep(0)
        clock.advance(0.5)
        await asyncio.sleep(0)
        assert not short.done()
        clock.advance(0.5)
        await short
        assert events == ["short"]
        clock.advance(10)
        await long
        return events

    assert asyncio.run(main()) == ["short", "long"]


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_time_at_all(seconds: float) -> None:
    """A body without time ends at its first wait."""

    async def main() -> None:
        async with FakeClock().timeout(seconds):
            await hang()

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_a_body_that_ends_in_time_is_left_alone() -> None:
    """What is over before the clock moves is not cancelled afterwards, and without a limit nothing is."""

    async def main() -> str:
        clock = FakeClock()
        async with clock.timeout(1):
            clock.advance(0.5)
        async with clock.timeout(1):
            clock.advance(1)  # the body ends before the event loop has the turn
        async with clock.timeout(None):
            clock.advance(1000)
            await asyncio.sleep(0)
        return "done"

    assert asyncio.run(main()) == "done"


def test_an_error_of_the_body_passes() -> None:
    """What the body raises comes out as it is."""

    async def main() -> None:
        async with FakeClock().timeout(1):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(main())


def test_another_thread_may_advance() -> None:
    """Time may be moved from outside the event loop."""
    clock = FakeClock()
    waiting = threading.Event()

    async def main() -> None:
        async with clock.timeout(5):
            waiting.set()
            await hang()

    def advance() -> None:
        waiting.wait()
        clock.advance(5)

    thread = threading.Thread(target=advance)
    thread.start()
    with pytest.raises(TimeoutError):
        asyncio.run(main())
    thread.join()
