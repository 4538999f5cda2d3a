from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from itertools import count, takewhile
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import DeadlineExceededError, ServiceError
from retrieval_core.run import sync
from retrieval_core.run.sync import SingleFlight, SyncBridge, in_step, is_sync_call, to_a_loop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

PATIENCE = 30.0


@pytest.fixture
def bridge() -> Iterator[SyncBridge]:
    bridge = SyncBridge()
    yield bridge
    bridge.close()


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def current_thread() -> threading.Thread:
    return threading.current_thread()


async def running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def test_results_and_errors_come_back(bridge: SyncBridge) -> None:
    """A coroutine's result is returned and its error raised, the loop surviving both."""

    async def fail() -> None:
        raise KeyError("mine")

    assert bridge.run(thread_name()) == "retrieval-sync"
    with pytest.raises(KeyError, match="mine"):
        bridge.run(fail())
    assert bridge.run(running_loop()) is bridge.run(running_loop())


def test_inside_a_running_loop(bridge: SyncBridge) -> None:
    """It works where a loop is running already, as in a notebook, and uses another one."""

    async def cell() -> bool:
        return bridge.run(running_loop()) is asyncio.get_running_loop()

    assert asyncio.run(cell()) is False


def test_from_many_threads(bridge: SyncBridge) -> None:
    """Calls from several threads share the one loop and run at the same time."""
    everyone = asyncio.Event()
    arrived: list[str] = []

    async def meet() -> int:
        arrived.append(threading.current_thread().name)
        if len(arrived) == 8:
            everyone.set()
        await everyone.wait()
        return id(asyncio.get_running_loop())

    with ThreadPoolExecutor(8) as threads:
        loops = [task.result() for task in [threads.submit(lambda: bridge.run(meet())) for _ in range(8)]]
    assert len(set(loops)) == 1


def test_context_variables_are_carried_over(bridge: SyncBridge) -> None:
    """A coroutine sees the caller's context, as traces need it."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    async def read() -> str:
        return variable.get()

    variable.set("the caller's")
    assert bridge.run(read()) == "the caller's"


def test_an_interrupt_cancels_the_coroutine(bridge: SyncBridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """When waiting is interrupted, as by Ctrl-C, the coroutine is cancelled once, and may await to clean up."""
    started, cleaned_up = threading.Event(), threading.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(10):
                await asyncio.sleep(0)
            cleaned_up.set()

    def interrupt(future: Future[None], timeout: float | None = None) -> None:
        assert started.wait(PATIENCE)
        raise KeyboardInterrupt

    monkeypatch.setattr(Future, "result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        bridge.run(hang())
    assert cleaned_up.wait(PATIENCE)


def test_calling_back_from_the_loop_is_an_error_and_no_deadlock(bridge: SyncBridge) -> None:
    """A synchronous method called from the background loop itself would wait for itself, so it is refused."""

    async def calls_back() -> None:
        bridge.run(thread_name())

    with pytest.raises(RuntimeError, match="synchronous"):
        bridge.run(calls_back())
    assert bridge.run(thread_name()) == "retrieval-sync"


def test_close_and_use_again(bridge: SyncBridge) -> None:
    """Closing ends thread and loop; closing twice is fine, and the next call starts another loop."""
    bridge.close()
    threads = set(threading.enumerate())
    loop = bridge.run(running_loop())
    assert len(set(threading.enumerate()) - threads) == 1
    bridge.close()
    assert loop.is_closed()
    assert set(threading.enumerate()) <= threads
    bridge.close()
    assert bridge.run(running_loop()) is not loop


def test_closing_ends_what_is_under_way(bridge: SyncBridge) -> None:
    """Who waits for a call while another thread closes is told, and does not wait for ever."""
    started = threading.Event()
    ended = threading.Event()

    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(bridge.run, hang())
        assert started.wait(PATIENCE)
        bridge.close()
        with pytest.raises(ServiceError, match="closed while"):
            waiting.result(PATIENCE)
    assert ended.is_set()


def test_closing_does_not_wait_for_ever(bridge: SyncBridge, caplog: pytest.LogCaptureFixture) -> None:
    """A coroutine that goes on after it was cancelled does not hold up whoever closes, who is told."""
    started, go_on, ended = threading.Event(), asyncio.Event(), threading.Event()

    async def stubborn() -> None:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await go_on.wait()
        ended.set()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(bridge.run, stubborn())
        assert started.wait(PATIENCE)
        loop = bridge.run(running_loop())
        bridge.close(patience=0)
        assert [record.getMessage()[:60] for record in caplog.records] == [
            "the event loop of synchronous calls did not end within 0 s: s"[:60]
        ]
        loop.call_soon_threadsafe(go_on.set)
        assert ended.wait(PATIENCE)
        waiting.exception(PATIENCE)


def in_child_process(work: Callable[[], object]) -> int:
    """Fork, do the work in the child, and return its exit status: 0 where it returned something true."""
    with warnings.catch_warnings():
        if sys.version_info >= (3, 12):
            warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(int(PATIENCE))
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork(bridge: SyncBridge) -> None:
    """A child process gets a loop of its own, and the parent's goes on."""
    loop = bridge.run(running_loop())
    assert in_child_process(lambda: bridge.run(running_loop()) is not loop) == 0
    assert in_child_process(lambda: bridge.close() is None and bridge.run(thread_name()) == "retrieval-sync") == 0
    assert bridge.run(running_loop()) is loop


def test_the_parents_loop_is_left_as_it_is(bridge: SyncBridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another process the loop is replaced and not closed, for its file descriptors are the parent's too."""
    loop = bridge.run(running_loop())
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert bridge.run(running_loop()) is not loop
    assert loop.is_running()
    loop.call_soon_threadsafe(loop.stop)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_while_a_thread_holds_the_lock(bridge: SyncBridge) -> None:
    """A lock that was held when the process forked does not hold up the child."""
    bridge.run(thread_name())
    with bridge._lock:
        assert in_child_process(lambda: bridge.run(thread_name()) == "retrieval-sync") == 0


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_the_loop_outlives_what_ends_loops(bridge: SyncBridge, error: BaseException) -> None:
    """Two exceptions are let out of a loop by asyncio: their caller is told, and nobody else is disturbed."""
    opened = threading.Event()

    async def fail() -> None:
        raise error

    async def waits() -> asyncio.AbstractEventLoop:
        await asyncio.to_thread(opened.wait)
        return asyncio.get_running_loop()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(bridge.run, waits())
        with pytest.raises(type(error)):
            bridge.run(fail())
        opened.set()
        assert waiting.result(PATIENCE) is bridge.run(running_loop())


def test_a_blocked_loop_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is told, nothing is waited for for ever, and the next call has another loop."""
    monkeypatch.setattr(sync, "GRACE", 0)
    bridge = SyncBridge()
    entered, opened = threading.Event(), threading.Event()

    async def block() -> None:
        entered.set()
        while not opened.is_set():
            pass

    with ThreadPoolExecutor(1) as threads:
        blocking = threads.submit(bridge.run, block())
        assert entered.wait(PATIENCE)
        with pytest.raises(DeadlineExceededError, match="blocks the event loop"):
            bridge.run(thread_name(), seconds=0)
        assert bridge.run(thread_name()) == "retrieval-sync"
        opened.set()
        blocking.result(PATIENCE)
    bridge.close()


def test_the_bound_of_a_bridge_is_that_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that says nothing is bounded, and so is a stream; one may say that it is not."""
    monkeypatch.setattr(sync, "GRACE", 0)
    bridge = SyncBridge(seconds=0)
    over: list[SimpleQueue[None]] = [SimpleQueue(), SimpleQueue()]

    async def block(number: int) -> None:
        over[number].get()

    async def events() -> AsyncGenerator[int]:
        await block(1)
        yield 1

    with pytest.raises(DeadlineExceededError, match="blocks the event loop"):
        bridge.run(block(0))
    with pytest.raises(DeadlineExceededError, match="blocks the event loop"):
        next(in_step(bridge, events()))
    assert bridge.run(thread_name(), seconds=None) == "retrieval-sync"
    for one in over:
        one.put(None)
    bridge.close()


@pytest.mark.slow
def test_what_was_used_is_closed_though_the_loop_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another loop then; and who closes is told what blocks."""
    monkeypatch.setattr(sync, "GRACE", 3)
    bridge = SyncBridge()
    entered, over = threading.Event(), SimpleQueue[None]()
    closed: list[str] = []

    async def block() -> None:
        entered.set()
        over.get()

    async def close() -> None:
        closed.append(await thread_name())

    with ThreadPoolExecutor(1) as threads:
        blocking = threads.submit(bridge.run, block())
        assert entered.wait(PATIENCE)
        with pytest.raises(DeadlineExceededError, match="blocks the event loop"):
            bridge.finish(close, patience=0)
        assert closed == ["retrieval-sync"]
        over.put(None)
        blocking.result(PATIENCE)


def test_a_loop_that_takes_its_turns_is_waited_for(bridge: SyncBridge) -> None:
    """A call bounds itself: it may end late, as long as the loop is not blocked."""
    turns = 0

    async def takes_turns() -> str:
        nonlocal turns
        while turns < 1000:
            turns += 1
            await asyncio.sleep(0)
        return "done"

    assert bridge.run(takes_turns(), seconds=0) == "done"

    async def times_out() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        bridge.run(times_out(), seconds=PATIENCE)
    assert bridge.run(thread_name(), seconds=float("inf")) == "retrieval-sync"


def test_a_loop_that_takes_its_turns_is_waited_for_after_the_grace(
    bridge: SyncBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows within the grace that it isn't blocked, and then has all the time that its call takes."""
    monkeypatch.setattr(sync, "GRACE", 0.3)
    end = time.monotonic() + 0.6

    async def takes_turns() -> str:
        for _ in takewhile(lambda _: time.monotonic() < end, count()):
            await asyncio.sleep(0)
        return "done"

    assert bridge.run(takes_turns(), seconds=0) == "done"


def test_a_bridge_that_nobody_uses_any_more_lets_go() -> None:
    """One that was never closed leaves neither a thread nor a loop behind."""
    bridge = SyncBridge()
    loop, thread = bridge.run(running_loop()), bridge.run(current_thread())
    del bridge
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert loop.is_closed()


def test_a_synchronous_call_within_another() -> None:
    """A coroutine on one bridge's loop may use another bridge, as an asynchronous plug-in that asks another index."""
    outer, inner = SyncBridge(), SyncBridge()

    async def asks_another() -> str:
        return inner.run(thread_name())

    assert outer.run(asks_another()) == "retrieval-sync"
    outer.close()
    inner.close()


def test_a_bridge_that_is_left_open_does_not_keep_the_process() -> None:
    """The interpreter exits at once and in silence, though a call is under way in a thread."""
    program = """
import asyncio, threading
from retrieval_core.run.sync import SingleFlight
from retrieval_core.run.sync import SyncBridge, is_sync_call, to_a_loop

bridge = SyncBridge()
begun = threading.Event()

async def hang():
    begun.set()
    await asyncio.Event().wait()

threading.Thread(target=lambda: bridge.run(hang()), daemon=True).start()
begun.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE, capture_output=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_what_needs_no_loop_runs_on_the_callers_thread(bridge: SyncBridge) -> None:
    """A coroutine that waits for nothing is run where it is called, on any thread; no thread starts for it."""

    async def compute() -> tuple[int, bool]:
        return threading.get_ident(), is_sync_call()

    async def fail() -> None:
        raise KeyError("mine")

    before = set(threading.enumerate())
    assert bridge.run_here(compute()) == (threading.get_ident(), True)
    with pytest.raises(KeyError, match="mine"):
        bridge.run_here(fail())
    assert set(threading.enumerate()) == before
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: bridge.run_here(compute())[0] == threading.get_ident()).result()


def test_what_needs_a_loop_is_moved_to_it_in_its_own_context(bridge: SyncBridge) -> None:
    """From where it awaits ``to_a_loop()``, a coroutine is a task; it can reset what it set before, and be bounded."""
    variable: ContextVar[str] = ContextVar("variable", default="unset")

    async def move() -> tuple[str, str, str, bool]:
        token, first = variable.set(f"{variable.get()}, changed"), threading.current_thread().name
        await to_a_loop()
        second, seen = await thread_name(), variable.get()
        variable.reset(token)
        assert asyncio.current_task() is not None
        return first, second, f"{seen}, {variable.get()}", is_sync_call()

    async def hang() -> None:
        await to_a_loop()
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    variable.set("mine")
    here = threading.current_thread().name
    assert bridge.run_here(move()) == (here, "retrieval-sync", "mine, changed, mine", True)
    with pytest.raises(TimeoutError):
        bridge.run_here(hang())


def test_waiting_without_a_loop_is_an_error(bridge: SyncBridge) -> None:
    """A coroutine that waits for something else first is told so, and closed."""

    async def wait() -> None:
        await asyncio.sleep(0)

    waiting = wait()
    with pytest.raises(RuntimeError, match=r"wait waits .*to_a_loop"):
        bridge.run_here(waiting)
    assert waiting.cr_frame is None


def test_in_a_running_loop_nothing_runs_in_that_loop(bridge: SyncBridge) -> None:
    """Where a loop is running on the caller's thread, as in a notebook, the whole coroutine is moved."""

    async def cell() -> tuple[str, bool]:
        return bridge.run_here(thread_name()), is_sync_call()

    assert asyncio.run(cell()) == ("retrieval-sync", False)


def test_single_flight_shares_only_what_needs_a_loop(bridge: SyncBridge) -> None:
    """A call that computes makes no task; callers of several threads share one that goes on in the loop."""
    flights = SingleFlight[str]()
    both = threading.Barrier(2)
    runs: list[str] = []

    async def compute() -> str:
        return threading.current_thread().name

    async def share() -> str:
        both.wait(PATIENCE)
        await to_a_loop()
        runs.append("run")
        await asyncio.sleep(0.2)
        return threading.current_thread().name

    before = set(threading.enumerate())
    assert bridge.run_here(flights.run("key", compute)) == threading.current_thread().name
    assert set(threading.enumerate()) == before
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(lambda: bridge.run_here(flights.run("key", share))) for _ in range(2)]
        assert {future.result() for future in futures} == {"retrieval-sync"}
    assert runs == ["run"]
