"""A bound on each call, beside the deadline of the whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.config import load_config
from retrieval_core.errors import DeadlineExceededError
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import CircuitBreakers
from retrieval_core.run.runner import Guard, Run, timeouts_of
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock
from support.examples import times

if TYPE_CHECKING:
    pass

SETTING = "timeouts.embedding"
TIMEOUTS = {"embed": (30.0, SETTING)}


async def hang() -> None:
    await asyncio.Event().wait()


async def give(value: object) -> object:
    return value


def hanging_for(run: Run, clock: FakeClock, seconds: float) -> Ok[None] | Failed:
    """Return what becomes of a call that has not ended after so many seconds."""

    async def main() -> Ok[None] | Failed:
        task = asyncio.create_task(run.call("embed", hang))
        for _ in range(10):
            await asyncio.sleep(0)
        clock.advance(seconds)
        return await task

    return asyncio.run(main())


@pytest.mark.parametrize("deadline", [None, 300.0])
def test_a_call_that_takes_longer_fails(pool: ThreadPool, deadline: float | None) -> None:
    """The error names the setting, and the run goes on; with and without a deadline."""
    clock = FakeClock()
    run = Run(pool, seconds=deadline, clock=clock, guard=Guard(timeouts=TIMEOUTS))
    outcome = hanging_for(run, clock, 30)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, DeadlineExceededError)
    assert outcome.reason == "embedding the query timed out after 30 s. Increase `timeouts.embedding`."
    assert asyncio.run(run.call("dense", give, 1)) == Ok(1)
    assert [record.stage for record in run.records] == ["embed", "dense"]


def test_a_backend_that_is_too_slow_is_left_alone(pool: ThreadPool) -> None:
    """The circuit breaker counts it as any other deadline."""
    clock = FakeClock()
    guard = Guard(breakers=CircuitBreakers(failures=1, pause=60), timeouts=TIMEOUTS)
    run = Run(pool, clock=clock, guard=guard)
    assert isinstance(hanging_for(run, clock, 30), Failed)
    outcome = asyncio.run(run.call("embed", give, 1))
    assert isinstance(outcome, Failed)
    assert outcome.attempts == 0


def test_which_stages_have_which_timeout(pool: ThreadPool) -> None:
    """As a preset sets them; other stages have none, and by default no stage has one."""
    clock = FakeClock()
    timeouts = timeouts_of(load_config("local-hybrid").timeouts)
    assert timeouts == {
        "embed": (30, "timeouts.embedding"),
        **dict.fromkeys(("dense", "lexical", "hybrid", "retrieve", "fetch"), (60, "timeouts.retrieval")),
        "rerank": (30, "timeouts.reranking"),
        "answer": (120, "timeouts.synthesis"),
    }
    assert timeouts_of(load_config().timeouts) == {}
    run = Run(pool, clock=clock, guard=Guard(timeouts=timeouts))
    outcome = hanging_for(run, clock, 30)
    assert isinstance(outcome, Failed)
    assert SETTING in outcome.reason

    async def slow() -> int:
        clock.advance(1000)
        return 1

    assert asyncio.run(run.call("relevance", slow)) == Ok(1)


@settings(max_examples=times(100))
@given(
    deadline=st.integers(1, 60), bound=st.integers(1, 60), begun=st.integers(0, 59), share=st.sampled_from([0.5, 1.0])
)
def test_whichever_is_over_first_ends_the_call(deadline: int, bound: int, begun: int, share: float) -> None:
    """The deadline, its part, or the bound; the error says which."""
    clock = FakeClock()
    pool = ThreadPool("test-plugins", threads=1)
    try:
        guard = Guard(timeouts={"embed": (bound, SETTING)})
        run = Run(pool, seconds=deadline, clock=clock, guard=guard).until(share)
        clock.advance(begun)
        left = deadline * share - begun
        outcome = hanging_for(run, clock, max(0.0, min(left, bound)))
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, DeadlineExceededError)
        assert (SETTING in outcome.reason) is (bound < left)
        assert ("deadline_seconds" in outcome.reason) is (bound >= left)
    finally:
        pool.close()
