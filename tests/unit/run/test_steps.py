"""A coroutine that is taken one step ends as if it had been awaited."""

from __future__ import annotations

import asyncio

import pytest

from retrieval_core.run.steps import FirstStep


async def wait(gate: asyncio.Event, seen: list[str]) -> str:
    seen.append("begun")
    try:
        await gate.wait()
        await asyncio.sleep(0)
    except BaseException as error:
        seen.append(type(error).__name__)
        raise
    return "value"


def test_what_waits_for_nothing_is_done() -> None:
    """Its value is there, and its error is raised, without a turn of the loop."""

    async def value() -> int:
        return 7

    async def fail() -> None:
        raise ValueError("no")

    step = FirstStep(value())
    assert (step.is_done, step.value) == (True, 7)
    with pytest.raises(ValueError, match="no"):
        FirstStep(fail())


def test_what_waits_goes_on_when_it_is_awaited() -> None:
    """Over several waits, within the task that took the first step."""

    async def test() -> None:
        gate, seen = asyncio.Event(), list[str]()
        step = FirstStep(wait(gate, seen))
        assert (step.is_done, seen) == (False, ["begun"])
        asyncio.get_running_loop().call_soon(gate.set)
        assert await step == "value"

    asyncio.run(test())


def test_a_time_out_and_a_cancellation_reach_it() -> None:
    """It sees that it is cancelled, and its caller what comes of that."""

    async def test() -> None:
        gate, seen = asyncio.Event(), list[str]()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await FirstStep(wait(gate, seen))
        assert seen == ["begun", "CancelledError"]

    asyncio.run(test())


def test_what_is_not_awaited_after_all_is_closed() -> None:
    """It ends where it waited, and so it does where whoever awaits it is closed."""

    async def test() -> None:
        gate, seen = asyncio.Event(), list[str]()
        FirstStep(wait(gate, seen)).close()
        assert seen == ["begun", "GeneratorExit"]

        async def outer() -> None:
            await FirstStep(wait(gate, seen))

        coroutine = outer()
        coroutine.send(None)
        coroutine.close()
        assert seen == ["begun", "GeneratorExit"] * 2

    asyncio.run(test())
