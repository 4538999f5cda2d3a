"""A backend that keeps failing is left alone, and tried again after a pause."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from retrieval_core.errors import CircuitOpenError, DeadlineExceededError, ServiceConnectionError, ServiceError
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import CircuitBreaker, CircuitBreakers, RetryPolicy
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock
from support.examples import times

if TYPE_CHECKING:
    pass

DOWN = ServiceConnectionError("connection refused")


async def answer() -> str:
    return "answer"


async def fail(error: Exception) -> str:
    raise error


def a_run(pool: ThreadPool, clock: FakeClock, breakers: CircuitBreakers, retries: int = 0) -> Run:
    return Run(pool, clock=clock, guard=Guard(RetryPolicy(retries), breakers))


def test_calls_stop_and_come_back(pool: ThreadPool) -> None:
    """After so many failed calls none is made; after the pause one is, and if it works all are."""
    clock, breakers = FakeClock(), CircuitBreakers(failures=2, pause=30)

    async def test() -> None:
        run = a_run(pool, clock, breakers).on("store")
        for _ in range(2):
            assert isinstance(await run.call("dense", fail, DOWN), Failed)
        stopped = await run.call("lexical", answer)
        assert isinstance(stopped, Failed)
        assert isinstance(stopped.error, CircuitOpenError)
        assert stopped.attempts == 0
        assert "store failed 2 times in a row" in stopped.reason
        assert "connection refused" in stopped.reason
        assert await run.on("other").call("dense", answer) == Ok("answer")
        clock.advance(1.9)
        assert isinstance(await run.call("dense", answer), Failed)
        clock.advance(0.1)
        assert await run.call("dense", answer) == Ok("answer")
        assert await run.call("dense", answer) == Ok("answer")

    asyncio.run(test())


def test_pauses_grow_until_a_call_works(pool: ThreadPool) -> None:
    """A backend that was away for a moment is called soon after; one that stays away is called rarely."""
    clock, breakers = FakeClock(), CircuitBreakers(failures=1, pause=30)

    async def test() -> None:
        run = a_run(pool, clock, breakers).on("store")
        for _ in range(2):
            await run.call("dense", fail, DOWN)
            for pause in (2, 4, 8, 16, 30, 30):
                clock.advance(pause - 0.1)
                assert isinstance(await run.call("dense", answer), Failed)
                clock.advance(0.1)
                failed = await run.call("dense", fail, DOWN)
                assert isinstance(failed, Failed)
                assert failed.error is DOWN
            clock.advance(30)
            assert await run.call("dense", answer) == Ok("answer")

    asyncio.run(test())


def test_one_call_tries_while_the_others_wait(pool: ThreadPool) -> None:
    """After the pause a single call is let through; if it fails, another pause begins."""
    clock, breakers = FakeClock(), CircuitBreakers(failures=1, pause=2)

    async def test() -> None:
        run = a_run(pool, clock, breakers).on("store")
        gate = asyncio.Event()

        async def slow() -> str:
            await gate.wait()
            raise DOWN

        await run.call("dense", fail, DOWN)
        clock.advance(2)
        trial = asyncio.create_task(run.call("dense", slow))
        await asyncio.sleep(0)
        other = await run.call("dense", answer)
        assert isinstance(other, Failed)
        gate.set()
        assert isinstance(await trial, Failed)
        assert isinstance(await run.call("dense", answer), Failed)
        clock.advance(2)
        assert await run.call("dense", answer) == Ok("answer")

    asyncio.run(test())


def test_a_call_with_its_retries_counts_once(pool: ThreadPool) -> None:
    """Retries are part of a call: three attempts of one query do not stop the next query."""
    clock, breakers = FakeClock(), CircuitBreakers(failures=2, pause=30)

    async def test() -> None:
        run = a_run(pool, clock, breakers, retries=3)
        outcome = await run.call("embed", fail, DOWN)
        assert isinstance(outcome, Failed)
        assert outcome.attempts == 4
        assert await run.call("embed", answer) == Ok("answer")

    asyncio.run(test())


@pytest.mark.parametrize("error", [ServiceError("bad request", status=400), ValueError("a bug"), DOWN])
def test_only_a_backend_that_is_down_counts(pool: ThreadPool, error: Exception) -> None:
    """What is asked wrongly says nothing about the backend."""
    clock, breakers = FakeClock(), CircuitBreakers(failures=1, pause=30)

    async def test() -> None:
        run = a_run(pool, clock, breakers)
        await run.call("embed", fail, error)
        assert isinstance(await run.call("embed", answer), Failed if error is DOWN else Ok)

    asyncio.run(test())


def test_hanging_counts_and_having_no_time_does_not(pool: ThreadPool) -> None:
    """A deadline that passes during a call is the backend's fault; one that had passed before is not."""
    clock, breakers = FakeClock(), CircuitBreakers(failures=1, pause=30)

    async def test() -> None:
        late = Run(pool, seconds=1, clock=clock, guard=Guard(breakers=breakers))
        clock.advance(1)
        for _ in range(3):
            outcome = await late.call("embed", answer)
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, DeadlineExceededError)
        assert await a_run(pool, clock, breakers).call("embed", answer) == Ok("answer")
        hanging = asyncio.create_task(
            Run(pool, seconds=1, clock=clock, guard=Guard(breakers=breakers)).call("embed", asyncio.Event().wait)
        )
        await asyncio.sleep(0)
        clock.advance(1)
        assert isinstance(await hanging, Failed)
        assert isinstance(await a_run(pool, clock, breakers).call("embed", answer), Failed)

    asyncio.run(test())


def test_no_breaker(pool: ThreadPool) -> None:
    """With 0 failures nothing is ever stopped."""
    breakers = CircuitBreakers(failures=0, pause=30)

    async def test() -> None:
        run = a_run(pool, FakeClock(), breakers)
        for _ in range(20):
            await run.call("embed", fail, DOWN)
        assert await run.call("embed", answer) == Ok("answer")

    asyncio.run(test())


class BreakerMachine(RuleBasedStateMachine):
    """Compares a breaker with its promise, whatever comes in whatever order."""

    @initialize(failures=st.integers(1, 4), pause=st.integers(1, 9))
    def begin(self, failures: int, pause: int) -> None:
        self.clock = FakeClock()
        self.limit, self.longest, self.pause = failures, pause, min(2, pause)
        self.breaker = CircuitBreaker("store", failures=failures, pause=pause, clock=self.clock)
        self.in_a_row = 0
        self.stopped_until: float | None = None

    @rule(seconds=st.integers(0, 5))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: not self.is_stopped())
    @rule(works=st.booleans())
    def a_call_is_made(self, works: bool) -> None:
        self.breaker.admit()
        if self.stopped_until is not None:
            self.pause = min(2 * self.pause, self.longest)
        if works:
            self.breaker.succeeded()
            self.in_a_row, self.stopped_until, self.pause = 0, None, min(2, self.longest)
            return
        self.breaker.failed(DOWN)
        self.in_a_row += 1
        if self.in_a_row >= self.limit:
            self.stopped_until = self.clock.now() + self.pause

    @precondition(lambda self: self.is_stopped())
    @rule()
    def a_call_is_stopped(self) -> None:
        with pytest.raises(CircuitOpenError):
            self.breaker.admit()

    def is_stopped(self) -> bool:
        return self.stopped_until is not None and self.clock.now() < self.stopped_until


TestBreakerMachine = BreakerMachine.TestCase
TestBreakerMachine.settings = settings(max_examples=times(100), stateful_step_count=30)
