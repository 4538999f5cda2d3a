"""Identical work at the same time is done once."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from retrieval_core.run.sync import SingleFlight
from support.plugins import Panic

PATIENCE = 30.0


class Work:
    """Counts its beginnings and ends; lasts until its gate is opened."""

    def __init__(self) -> None:
        self.begun = 0
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.failure: Exception | None = None

    async def run(self) -> str:
        self.begun += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failure:
            raise self.failure
        return f"answer {self.begun}"


async def until_waiting() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_callers_of_one_key_share() -> None:
    """Two hundred callers cost one run; another key has its own; later ones begin anew."""

    async def test() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work, other = Work(), Work()
        callers = [asyncio.create_task(flights.run("a", work.run)) for _ in range(200)]
        apart = asyncio.create_task(flights.run("b", other.run))
        await until_waiting()
        work.gate.set()
        other.gate.set()
        assert set(await asyncio.gather(*callers)) == {"answer 1"}
        await apart
        assert (work.begun, other.begun) == (1, 1)
        assert await flights.run("a", work.run) == "answer 2"

    asyncio.run(test())


def test_it_outlives_who_began_it_and_ends_with_the_last() -> None:
    """The first caller may leave; when the last one leaves, the work is cancelled."""

    async def test() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        first, second = (asyncio.create_task(flights.run("a", work.run)) for _ in range(2))
        await until_waiting()
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        assert work.cancelled == 0
        second.cancel()
        await asyncio.wait([second])
        await until_waiting()
        assert work.cancelled == 1
        again = asyncio.create_task(flights.run("a", work.run))
        await until_waiting()
        work.gate.set()
        assert await again == "answer 2"

    asyncio.run(test())


def test_who_comes_after_the_last_has_left_begins_anew() -> None:
    """A cancelled run is never joined, also not before it has ended."""

    async def test() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        first = asyncio.create_task(flights.run("a", work.run))
        await until_waiting()
        first.cancel()
        await asyncio.sleep(0)
        work.gate.set()
        assert await flights.run("a", work.run) == "answer 2"
        await asyncio.wait([first])

    asyncio.run(test())


def test_a_failure_that_nobody_waits_for_is_not_reported() -> None:
    """Work that fails while it is cancelled leaves no complaint of a forgotten exception."""

    async def test() -> None:
        flights: SingleFlight[str] = SingleFlight()
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

        async def fail_late() -> str:
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError("while ending")

        caller = asyncio.create_task(flights.run("a", fail_late))
        await until_waiting()
        caller.cancel()
        await asyncio.wait([caller])
        await until_waiting()
        gc.collect()
        assert complaints == []

    asyncio.run(test())


@pytest.mark.parametrize("turns", [1, 5], ids=["before it began", "under way"])
def test_work_that_somebody_else_cancels(turns: int) -> None:
    """Callers are cancelled with it, and do not wait for ever; the next one begins anew."""

    async def test() -> None:
        work, flights = Work(), SingleFlight[str]()
        before = asyncio.all_tasks()
        callers = [asyncio.create_task(flights.run("key", work.run)) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        (flight,) = asyncio.all_tasks() - before - set(callers)
        flight.cancel()
        ended = await asyncio.gather(*callers, return_exceptions=True)
        assert [type(error) for error in ended] == [asyncio.CancelledError] * 2
        work.gate.set()
        assert (await flights.run("key", work.run)).startswith("answer")

    asyncio.run(test())


def test_loops_do_not_share() -> None:
    """Tasks belong to event loops, so each has its own flights, also at the same time."""
    flights: SingleFlight[str] = SingleFlight()

    def ask(_: int) -> str:
        async def test() -> str:
            work = Work()
            work.gate.set()
            return await flights.run("a", work.run)

        return asyncio.run(test())

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(ask, range(20))) == {"answer 1"}


@pytest.mark.parametrize("cancel", [True, False])
def test_nothing_is_kept(cancel: bool) -> None:
    """When a run has ended its key is forgotten."""

    async def test() -> None:
        flights: SingleFlight[str] = SingleFlight()
        work = Work()
        caller = asyncio.create_task(flights.run("a", work.run))
        await until_waiting()
        if cancel:
            caller.cancel()
        work.gate.set()
        await asyncio.wait([caller])
        await until_waiting()
        assert not any(flights._flights.values())

    asyncio.run(test())


@pytest.mark.parametrize("error", [Panic("it gave up"), GeneratorExit(), KeyError("mine")])
def test_everybody_is_told_whatever_ends_the_work(error: BaseException) -> None:
    """Nobody waits for ever for work that ended with something that is no ``Exception``."""

    async def fails() -> str:
        await asyncio.sleep(0)
        raise error

    async def test() -> None:
        flights: SingleFlight[str] = SingleFlight()
        callers = [asyncio.create_task(flights.run("a", fails)) for _ in range(3)]
        async with asyncio.timeout(PATIENCE):
            outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert outcomes == [error] * 3

    asyncio.run(test())


def test_an_interrupt_of_the_work_reaches_those_who_wait() -> None:
    """It ends the loop, as Ctrl-C does; on a loop that is run further, as a notebook's, nobody waits for ever."""

    async def interrupted() -> str:
        raise KeyboardInterrupt

    flights: SingleFlight[str] = SingleFlight()
    with asyncio.Runner() as runner:
        caller = runner.get_loop().create_task(flights.run("a", interrupted))
        for _ in range(2):  # the work's task lets it out of the loop, and then the caller's
            with pytest.raises(KeyboardInterrupt):
                runner.get_loop().run_until_complete(asyncio.wait((caller,)))
        assert isinstance(caller.exception(), KeyboardInterrupt)
