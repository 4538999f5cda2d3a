"""Trying again: only where it can help, never more often than allowed, never longer than there is time."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import (
    ConfigurationError,
    DeadlineExceededError,
    EmbeddingError,
    IndexBusyError,
    MalformedAnswerError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.run.outcomes import Failed, Ok
from retrieval_core.run.retry import RetryPolicy, can_help
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator

DOWN = ServiceConnectionError("connection refused", "pinecone")


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPool]:
    pool = ThreadPool("test-retry", threads=1)
    yield pool
    pool.close()


class Backend:
    """Raises one error after another, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def ask(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def call(pool: ThreadPool, backend: Backend, policy: RetryPolicy, seconds: float | None = None) -> tuple[Run, object]:
    clock = FakeClock()
    run = Run(pool, seconds=seconds, clock=clock, guard=Guard(policy))
    outcome = asyncio.run(run.call("dense", backend.ask))
    assert run.elapsed_ms == pytest.approx(1000 * sum(clock.slept))
    return run, outcome


@pytest.mark.property("data-retrieval-pipeline", 12)
@given(failures=st.integers(0, 12), max_retries=st.integers(0, 8))
def test_retry_logic_enforcement(pool: ThreadPool, failures: int, max_retries: int) -> None:
    """A transient failure is tried again up to ``max_retries`` times, and never more.

    Fails with ``state.attempt_number > policy.max_retries`` changed to ``>=`` or to ``policy.max_retries + 1``.
    """
    backend = Backend(*[DOWN] * failures)
    run, outcome = call(pool, backend, RetryPolicy(max_retries=max_retries))
    assert backend.calls == min(failures, max_retries) + 1
    assert backend.calls <= max_retries + 1
    assert isinstance(outcome, Ok) == (failures <= max_retries)
    assert [record.attempts for record in run.records] == [backend.calls]


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (DOWN, True),
        (ServiceTimeoutError("slow"), True),
        (ServiceError("limit", status=429), True),
        (ServiceError("fault", status=500), True),
        (ServiceError("gateway", status=503), True),
        (IndexBusyError("busy"), True),
        (MalformedAnswerError("no JSON"), True),
        (ConnectionResetError("as plug-ins raise it"), True),
        (TimeoutError("likewise"), True),
        (ServiceError("key", status=401), False),
        (ServiceError("gone", status=404), False),
        (ServiceError("bad request", status=400), False),
        (ServiceError("no status"), False),
        (DeadlineExceededError("over"), False),
        (EmbeddingError("no vector"), False),
        (ConfigurationError("no key"), False),
        (RuntimeError("bug"), False),
    ],
)
def test_only_what_can_help_is_tried_again(pool: ThreadPool, error: Exception, helps: bool) -> None:
    """What says that the call itself is wrong is not made again."""
    backend = Backend(error)
    _, outcome = call(pool, backend, RetryPolicy(max_retries=3))
    assert can_help(error) == helps
    assert isinstance(outcome, Ok) == helps
    assert backend.calls == 1 + helps


@given(
    base=st.floats(0.01, 5),
    cap=st.floats(0.01, 20),
    growth=st.floats(1, 3),
    retries=st.integers(1, 6),
)
def test_waits_grow_up_to_the_cap(pool: ThreadPool, base: float, cap: float, growth: float, retries: int) -> None:
    """Each wait is the exponential one, plus at most one base delay of jitter, and never more than the cap."""
    clock = FakeClock()
    policy = RetryPolicy(retries, base_delay=base, max_delay=cap, exponential_base=growth)
    run = Run(pool, clock=clock, guard=Guard(policy))
    asyncio.run(run.call("dense", Backend(*[DOWN] * 20).ask))
    assert len(clock.slept) == retries
    for number, wait in enumerate(clock.slept):
        least = min(cap, base * growth**number)
        assert least - 1e-9 <= wait <= min(cap, base * growth**number + base) + 1e-9


def test_a_service_may_ask_for_more_patience(pool: ThreadPool) -> None:
    """``Retry-After`` is honoured, also beyond the cap."""
    clock = FakeClock()
    run = Run(pool, clock=clock, guard=Guard(RetryPolicy(max_delay=2)))
    limited = ServiceError("slow down", status=429, retry_after=17)
    assert asyncio.run(run.call("dense", Backend(limited).ask)) == Ok("answer")
    assert clock.slept == [17]


def test_an_answer_that_cannot_be_read_is_asked_for_again_at_once(pool: ThreadPool) -> None:
    """Waiting does not make a model write better; what else fails in between is waited for as ever."""
    clock = FakeClock()
    run = Run(pool, seconds=10, clock=clock, guard=Guard(RetryPolicy(max_retries=3)))
    backend = Backend(MalformedAnswerError("no JSON"), DOWN, MalformedAnswerError("no JSON"))
    assert asyncio.run(run.call("relevance", backend.ask)) == Ok("answer")
    assert clock.slept[0] == clock.slept[2] == 0
    assert clock.slept[1] >= 1


def test_a_model_that_never_gets_it_right_is_given_up(pool: ThreadPool) -> None:
    """Attempts without waits are counted as all others."""
    backend = Backend(*[MalformedAnswerError("no JSON")] * 10)
    _, outcome = call(pool, backend, RetryPolicy(max_retries=3))
    assert isinstance(outcome, Failed)
    assert backend.calls == outcome.attempts == 4


def test_no_attempt_without_a_wait_is_made_after_the_deadline(pool: ThreadPool) -> None:
    """An answer that cannot be read and comes at the very end of the time is not asked for again."""
    clock = FakeClock()
    run = Run(pool, seconds=2, clock=clock, guard=Guard(RetryPolicy(max_retries=3)))
    calls: list[float] = []

    async def ask() -> str:
        calls.append(clock.now())
        with contextlib.suppress(asyncio.CancelledError):  # it is done in the moment in which its time is over
            clock.advance(1)
            await asyncio.sleep(0)
        raise MalformedAnswerError("no JSON")

    outcome = asyncio.run(run.call("relevance", ask))
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, MalformedAnswerError)
    assert calls == [0, 1]


def test_a_service_that_asks_for_patience_gets_it_after_any_answer(pool: ThreadPool) -> None:
    """``Retry-After`` counts also where the answer could not be read."""
    clock = FakeClock()
    run = Run(pool, clock=clock, guard=Guard(RetryPolicy()))
    assert asyncio.run(run.call("embed", Backend(MalformedAnswerError("no JSON", retry_after=7)).ask)) == Ok("answer")
    assert clock.slept == [7]


def test_a_wait_that_leaves_no_time_is_not_begun(pool: ThreadPool) -> None:
    """When the deadline would pass while waiting, the failure is told at once."""
    clock = FakeClock()
    run = Run(pool, seconds=10, clock=clock, guard=Guard(RetryPolicy()))
    limited = ServiceError("slow down", "openai", status=429, retry_after=10)
    outcome = asyncio.run(run.call("dense", Backend(limited).ask))
    assert isinstance(outcome, Failed)
    assert outcome.error is limited
    assert clock.slept == []


def test_a_run_without_retries(pool: ThreadPool) -> None:
    """What is better done without than waited for is called once."""
    backend = Backend(DOWN)
    run = Run(pool, clock=FakeClock(), guard=Guard(RetryPolicy()))
    outcome = asyncio.run(run.without_retries().call("cache", backend.ask))
    assert isinstance(outcome, Failed)
    assert (backend.calls, outcome.attempts) == (1, 1)
    assert asyncio.run(run.call("cache", Backend(DOWN).ask)) == Ok("answer")
