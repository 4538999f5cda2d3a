from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.errors import (
    ConfigurationError,
    DeadlineExceededError,
    DimensionMismatchError,
    EmbedderMismatchError,
    EmbeddingError,
    IndexBusyError,
    IndexNotFoundError,
    InvalidParameterError,
    MissingExtraError,
    SearchError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
    UnsupportedFilterError,
)
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.outcomes import Failed, Ok, is_callers_fault
from retrieval_core.run.retry import RetryPolicy
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.sync import SyncBridge
from retrieval_core.run.threads import PoolSaturatedError, ThreadPool
from retrieval_core.testing.clock import FakeClock
from retrieval_core.types import FailedAttempt, StageRecord
from support.plugins import Panic, UnspeakableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def hang() -> None:
    await asyncio.Event().wait()


async def give(value: object) -> object:
    return value


async def fail(error: BaseException) -> None:
    raise error


def test_a_call_that_works(pool: ThreadPool) -> None:
    """The value comes back, arguments arrive, and a record says how many things a tuple held."""
    clock = FakeClock()
    run = Run(pool, clock=clock)

    async def work(first: int, *, second: int) -> tuple[int, int]:
        clock.advance(0.25)
        return first, second

    assert asyncio.run(run.call("search", work, 1, second=2)) == Ok((1, 2))
    assert asyncio.run(run.call("embed", give, "text")) == Ok("text")
    assert run.records == (
        StageRecord("search", 250, count_out=2, attempts=1, started_ms=0),
        StageRecord("embed", 0, attempts=1, started_ms=250),
    )
    assert run.elapsed_ms == 250


def test_what_only_computes_is_called_at_once(pool: ThreadPool) -> None:
    """Without an event loop a function gives a value and a record, its error a failure; nothing begins too late."""
    clock = FakeClock()
    run = Run(pool, seconds=1, clock=clock, guard=Guard(RetryPolicy(max_retries=3, base_delay=0)))

    def compute(first: int, *, second: int) -> tuple[int, int]:
        clock.advance(0.25)
        return first, second

    assert run.now("search", compute, 1, second=2) == Ok((1, 2))
    assert run.records == (StageRecord("search", 250, count_out=2, attempts=1, started_ms=0),)
    failed = run.now("search", compute, 1, wrong=2)  # pyright: ignore[reportCallIssue]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, TypeError)
    assert run.records[-1].attempts == len(run.records[-1].failed) == 1
    clock.advance(0.75)
    late = run.now("search", compute, 1, second=2)
    assert isinstance(late, Failed)
    assert isinstance(late.error, DeadlineExceededError)
    assert run.records[-1].attempts == 0


@dataclass
class UnhashableError(Exception):
    """As a plug-in may define it: equality by value makes it unhashable."""

    code: int


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a\n  b"),
        KeyError("k"),
        StopAsyncIteration(),
        ExceptionGroup("several", [ValueError()]),
        UnhashableError(3),
        TimeoutError("own"),
    ],
)
@pytest.mark.parametrize("in_thread", [True, False])
def test_whatever_is_raised_becomes_a_value(pool: ThreadPool, error: Exception, in_thread: bool) -> None:
    """A plug-in may raise anything; the failure holds it, and the record has the reason on one line."""

    def fail_in_thread() -> None:
        raise error

    run = Run(pool, seconds=60)
    function = cast("Callable[[], Awaitable[None]]", fail_in_thread if in_thread else partial(fail, error))
    outcome = asyncio.run(run.call("embed", function))
    assert isinstance(outcome, Failed)
    assert repr(outcome.error) == repr(error)  # a future carries a copy of a TimeoutError
    assert outcome.reason
    assert "\n" not in outcome.reason
    assert [(record.stage, record.error) for record in run.records] == [("embed", outcome.reason)]


def test_a_reason_is_never_empty() -> None:
    """An error without a message is named by its class; white space in messages is folded."""
    assert Failed("s", KeyError()).reason == "KeyError"
    assert Failed("s", RuntimeError(" a\n b ")).reason == "a b"


def test_functions_that_are_not_coroutines_run_in_a_thread(pool: ThreadPool) -> None:
    """A synchronous plug-in does not hold up the event loop, and a coroutine function does not leave it."""

    def where() -> str:
        return threading.current_thread().name

    async def where_async() -> str:
        return threading.current_thread().name

    run = Run(pool)
    outcome = asyncio.run(run.call("embed", cast("Callable[[], Awaitable[str]]", where)))
    assert isinstance(outcome, Ok)
    assert outcome.value.startswith("test-plugins")
    assert asyncio.run(run.call("embed", where_async)) == Ok(threading.current_thread().name)


def test_what_a_function_returns_to_be_awaited_is_awaited(pool: ThreadPool) -> None:
    """A plain function that hands on another one's coroutine, or an object that is called, works like that one."""

    class Calls:
        async def __call__(self, value: int) -> int:
            return value

    def hands_on(value: int) -> Awaitable[object]:
        return give(value)

    run = Run(pool)
    assert asyncio.run(run.call("embed", hands_on, 3)) == Ok(3)
    assert asyncio.run(run.call("embed", Calls(), 4)) == Ok(4)
    assert isinstance(asyncio.run(run.call("embed", partial(hands_on, cast("Any", 5)))), Ok)


def test_a_call_ends_with_the_deadline(pool: ThreadPool) -> None:
    """What hangs is cancelled when the run's time is over, and the error says what to change."""
    clock = FakeClock()
    run = Run(pool, seconds=2, clock=clock)

    async def main() -> Ok[None] | Failed:
        task = asyncio.create_task(run.call("embed", hang))
        await asyncio.sleep(0)
        clock.advance(2)
        return await task

    outcome = asyncio.run(main())
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, DeadlineExceededError)
    assert isinstance(outcome.error.__cause__, TimeoutError)
    assert "embed" in outcome.reason
    assert "2 s" in outcome.reason
    assert "deadline_seconds" in outcome.reason


def test_later_calls_have_what_is_left(pool: ThreadPool) -> None:
    """All calls of a run share one deadline; when it is over nothing more is begun."""
    clock = FakeClock()
    run = Run(pool, seconds=2, clock=clock)
    called: list[str] = []

    async def slow() -> None:
        clock.advance(1.5)

    async def late() -> None:
        called.append("late")

    async def main() -> tuple[Ok[None] | Failed, ...]:
        first = await run.call("embed", slow)
        second = asyncio.create_task(run.call("search", hang))
        await asyncio.sleep(0)
        clock.advance(0.5)
        return first, await second, await run.call("fetch", late)

    first, second, third = asyncio.run(main())
    assert first == Ok(None)
    assert isinstance(second, Failed)
    assert isinstance(third, Failed)
    assert isinstance(third.error, DeadlineExceededError)
    assert called == []
    assert [record.stage for record in run.records] == ["embed", "search", "fetch"]


def test_a_part_of_the_deadline(pool: ThreadPool) -> None:
    """The first part of a run has its own end, says so, and leaves the rest of the time to what follows."""
    clock = FakeClock()
    run = Run(pool, seconds=10, clock=clock)
    part = run.until(0.8)

    async def main() -> tuple[Ok[None] | Failed, Ok[object] | Failed]:
        task = asyncio.create_task(part.call("embed", hang))
        await asyncio.sleep(0)
        clock.advance(8)
        return await task, await run.call("fetch", give, 1)

    first, second = asyncio.run(main())
    assert isinstance(first, Failed)
    assert isinstance(first.error, DeadlineExceededError)
    assert "8 s (deadline 10 s)" in first.reason
    assert second == Ok(1)
    assert [record.stage for record in run.records] == ["embed", "fetch"]
    assert asyncio.run(Run(pool).until(0.5).call("embed", give, 2)) == Ok(2)


def test_a_plugins_own_timeout_is_not_the_deadline(pool: ThreadPool) -> None:
    """A time-out that was raised before the time was over, or by a service, stays what it is."""
    own, of_a_service = TimeoutError("socket"), ServiceTimeoutError("openai was slow")

    async def fail_after(clock: FakeClock, seconds: float, error: Exception) -> None:
        clock.advance(seconds)
        raise error

    for limit, seconds, error in ((60, 0, own), (None, 100, own), (60, 100, of_a_service)):
        clock = FakeClock()
        outcome = asyncio.run(Run(pool, seconds=limit, clock=clock).call("embed", fail_after, clock, seconds, error))
        assert isinstance(outcome, Failed)
        assert outcome.error is error


def test_cancellation_passes(pool: ThreadPool) -> None:
    """A caller that is cancelled stays cancelled; that is no failure of a stage."""
    run = Run(pool, seconds=60)

    async def main() -> None:
        task = asyncio.create_task(run.call("embed", hang))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert run.records == ()


def test_a_plugin_that_cancels_itself_has_failed(pool: ThreadPool) -> None:
    """A cancellation that nobody asked the caller for, as of a shared task, is a failure like any other."""

    async def awaits_what_was_cancelled() -> None:
        shared = asyncio.ensure_future(hang())
        shared.cancel()
        await shared

    outcome = asyncio.run(Run(pool).call("embed", awaits_what_was_cancelled))
    assert isinstance(outcome, Failed)
    assert outcome.reason == "it was cancelled from within"


def test_an_interrupt_passes(pool: ThreadPool) -> None:
    """Whoever wants the process to end is not kept waiting."""
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Run(pool).call("embed", fail, KeyboardInterrupt()))


@pytest.mark.parametrize("in_thread", [True, False])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SystemExit(3), "it tried to end the process"),
        (Panic("index out of range"), "it raised Panic: index out of range"),
        (GeneratorExit(), "it raised GeneratorExit"),
        (BaseExceptionGroup("two", [Panic()]), "it raised BaseExceptionGroup: two (1 sub-exception)"),
        (UnspeakableError(), "it raised UnspeakableError, whose message cannot be shown"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_a_plug_in_raises_is_a_failure(
    pool: ThreadPool, in_thread: bool, error: BaseException, reason: str
) -> None:
    """It would end the event loop, or be told to nobody; for the pipeline it is a failure like others."""

    def function() -> None:
        raise error

    outcome = asyncio.run(Run(pool).call("embed", cast("Any", function if in_thread else partial(fail, error))))
    assert isinstance(outcome, Failed)
    assert outcome.reason == reason
    assert outcome.error.__cause__ is error


def test_an_interrupt_outside_the_main_thread_is_a_failure(pool: ThreadPool) -> None:
    """Ctrl-C comes to the main thread alone: from another one it is of the plug-in's own making."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def main(function: Any) -> Any:
        return await Run(pool).call("embed", function)

    bridge = SyncBridge()
    for outcome in (
        asyncio.run(main(interrupt)),
        bridge.run(main(interrupt)),
        bridge.run(main(partial(fail, KeyboardInterrupt()))),
    ):
        assert isinstance(outcome, Failed)
        assert outcome.reason == "it raised KeyboardInterrupt"
    bridge.close()


def test_a_call_that_is_closed_ends(pool: ThreadPool) -> None:
    """A coroutine that is closed, as with its loop, is no failure of the plug-in that it awaits."""

    async def main() -> None:
        call = Run(pool).call("embed", hang)
        call.send(None)
        call.close()

    asyncio.run(main())


def test_a_function_that_raises_stop_iteration(pool: ThreadPool) -> None:
    """A future cannot hold it, and the caller would wait for ever."""

    def first_of_nothing() -> None:
        next(iter(()))

    outcome = asyncio.run(Run(pool).call("embed", cast("Any", first_of_nothing)))
    assert isinstance(outcome, Failed)
    assert "StopIteration" in outcome.reason


def test_a_part_of_the_deadline_from_now_on(pool: ThreadPool) -> None:
    """What is bound to a share of the deadline has that share when it begins, and never more than is left."""
    clock = FakeClock()
    run = Run(pool, seconds=10, clock=clock)
    clock.advance(5)
    assert not run.within(0.1).is_over
    soon = run.within(0.1)
    clock.advance(1)
    assert soon.is_over
    assert not run.is_over
    assert run.until(0.5).within(0.5).is_over
    assert not Run(pool, clock=clock).within(0.1).is_over


def test_stages_of_arithmetic_are_recorded_by_hand(pool: ThreadPool) -> None:
    """A note has the time since its start, and both counts."""
    clock = FakeClock()
    run = Run(pool, clock=clock)
    clock.advance(1)
    started = run.elapsed_ms
    clock.advance(0.5)
    run.note("fuse", started, 20, 10)
    assert run.records == (StageRecord("fuse", 500, 20, 10, started_ms=1000),)


def test_records_say_when_stages_and_failed_attempts_began(pool: ThreadPool) -> None:
    """From the beginning of the query, also in a search with a deadline of its own, and of a run inside of it."""
    clock = FakeClock()
    run = Run(pool, clock=clock, seconds=100, guard=Guard(RetryPolicy(2, base_delay=0)))
    clock.advance(1)
    part = run.afresh(0.5)
    errors = [ConnectionError("lost"), ConnectionError("lost again")]

    async def work() -> str:
        clock.advance(0.25)
        if errors:
            raise errors.pop(0)
        return "done"

    asyncio.run(part.call("embed", work))
    clock.advance(1)
    part.note("fuse", part.elapsed_ms - 500, 2, 1)
    embedded, fused = run.records
    assert (embedded.started_ms, embedded.milliseconds, embedded.attempts) == (1000, 750, 3)
    assert embedded.failed == (FailedAttempt(1000, 250, "lost"), FailedAttempt(1250, 250, "lost again"))
    assert fused.started_ms == 2250
    outer = Run(pool, clock=clock)
    clock.advance(4)
    outer.include("index a", run.records, 3000)
    assert [(record.stage, record.started_ms) for record in outer.records] == [
        ("index a: embed", 4000),
        ("index a: fuse", 5250),
    ]
    assert [each.started_ms for each in outer.records[0].failed] == [4000, 4250]
    outer.include("kept", (StageRecord("embed", 1.0),), 0)
    assert outer.records[-1].started_ms is None


def test_records_have_the_number_of_their_search(pool: ThreadPool) -> None:
    """Of calls that work, of those that fail, and of arithmetic; the run itself belongs to none."""
    run = Run(pool, clock=FakeClock())
    part = run.in_round(2).until(0.5)
    asyncio.run(part.call("embed", give, 1))
    part.note("fuse", 0, 20, 10)
    asyncio.run(run.in_round(3).call("dense", fail, ServiceConnectionError("down")))
    asyncio.run(run.call("rewrite", give, 1))
    assert [(record.stage, record.round) for record in run.records] == [
        ("embed", 2),
        ("fuse", 2),
        ("dense", 3),
        ("rewrite", None),
    ]


def test_the_systems_clock() -> None:
    """Real time does not go back, and a timeout of the real clock ends its body."""
    clock = SystemClock()
    before = clock.now()
    assert clock.now() >= before

    async def main() -> None:
        async with clock.timeout(0):
            await hang()

    with pytest.raises(TimeoutError):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ServiceError("no key", status=401), True),
        (ServiceError("not yours", status=403), True),
        (ServiceError("no such index", status=404), True),
        (ServiceError("slow down", status=429), False),
        (ServiceError("broken", status=500), False),
        (ServiceConnectionError("refused"), False),
        (DeadlineExceededError("late"), False),
        (PoolSaturatedError("full"), False),
        (IndexNotFoundError("none"), True),
        (EmbedderMismatchError("a", "b", "here"), True),
        (IndexBusyError("locked"), False),
        (ConfigurationError("wrong"), True),
        (MissingExtraError("local", "the local embedder"), True),
        (DimensionMismatchError(3, 4, "here"), True),
        (UnsupportedFilterError("$glob"), True),
        (InvalidParameterError("limit"), True),
        (EmbeddingError("no"), False),
        (SearchError("no"), False),
        (RuntimeError("no"), False),
    ],
)
def test_whose_fault_it_is(error: Exception, fault: bool) -> None:
    """What is set up or asked wrongly is told apart from what merely failed."""
    assert is_callers_fault(error) is fault
