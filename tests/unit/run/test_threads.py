from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from retrieval_core.run.threads import DaemonExecutor, PoolClosedError, PoolSaturatedError, ThreadPool

if TYPE_CHECKING:
    from collections.abc import Generator

PATIENCE = 30.0


class Gate:
    """Holds functions that run in a pool until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.opened = threading.Event()

    def wait(self) -> str:
        self.entered.release()
        assert self.opened.wait(PATIENCE)
        return "done"

    async def until_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.acquire, timeout=PATIENCE)


@pytest.fixture
def gate() -> Generator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture(params=[None, PATIENCE], ids=["own work", "plug-ins"])
def pool(request: pytest.FixtureRequest) -> Generator[ThreadPool]:
    pool = ThreadPool("test-pool", threads=1, waiting=1, patience=request.param)
    yield pool
    pool.close()


def test_runs_in_a_thread_of_its_own(pool: ThreadPool) -> None:
    """A function runs in a thread that is named after the pool, and its result comes back."""

    def work(first: int, *, second: int) -> tuple[int, str]:
        return first + second, threading.current_thread().name

    result, thread = asyncio.run(pool.run(work, 1, second=2))
    assert result == 3
    assert thread.startswith("test-pool")


def test_an_error_comes_back(pool: ThreadPool) -> None:
    """What the function raises is raised where it was waited for."""

    def fail() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        asyncio.run(pool.run(fail))


def test_context_variables_are_carried_over(pool: ThreadPool) -> None:
    """The function sees the caller's context variables; what it sets stays with it."""
    variable = ContextVar("variable", default="unset")

    def read_and_set() -> str:
        seen = variable.get()
        variable.set("from the thread")
        return seen

    async def main() -> tuple[str, str]:
        variable.set("from the caller")
        return await pool.run(read_and_set), variable.get()

    assert asyncio.run(main()) == ("from the caller", "from the caller")


def test_a_full_pool_refuses(pool: ThreadPool, gate: Gate) -> None:
    """With one function running and one waiting, a third is refused at once, and taken when there is room again."""

    async def main() -> None:
        running = asyncio.create_task(pool.run(gate.wait))
        await gate.until_entered()
        waiting = asyncio.create_task(pool.run(gate.wait))
        await asyncio.sleep(0)
        with pytest.raises(PoolSaturatedError, match=r"test-pool: 2 calls are running or waiting") as caught:
            await pool.run(gate.wait)
        assert caught.value.service == "test-pool"
        gate.opened.set()
        assert await asyncio.gather(running, waiting) == ["done", "done"]
        assert await pool.run(gate.wait) == "done"

    asyncio.run(main())


def test_cancelling_drops_what_waits(pool: ThreadPool, gate: Gate) -> None:
    """A cancelled call that waits for a thread never runs, and makes room for another."""

    async def main() -> None:
        running = asyncio.create_task(pool.run(gate.wait))
        await gate.until_entered()
        ran: list[int] = []
        waiting = asyncio.create_task(pool.run(ran.append, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        next_one = asyncio.create_task(pool.run(ran.append, 2))
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(running, next_one)
        assert ran == [2]

    asyncio.run(main())


def test_cancelling_abandons_what_runs(pool: ThreadPool, gate: Gate) -> None:
    """A cancelled call returns at once; its function runs to its end and keeps its place until then."""

    async def main() -> None:
        running = asyncio.create_task(pool.run(gate.wait))
        await gate.until_entered()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        waiting = asyncio.create_task(pool.run(gate.wait))
        await asyncio.sleep(0)
        with pytest.raises(PoolSaturatedError):
            await pool.run(gate.wait)
        gate.opened.set()
        assert await waiting == "done"

    asyncio.run(main())


def test_what_cannot_be_started_takes_no_place(pool: ThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a thread cannot be started, the error comes through and the pool has as much room as before."""

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(pool._executor, "submit", no_thread)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                asyncio.run(pool.run(int))
    assert asyncio.run(pool.run(int)) == 0


def test_a_closed_pool_refuses(pool: ThreadPool) -> None:
    """After closing, which may be done twice, calls are errors."""
    pool.close()
    pool.close()
    with pytest.raises(PoolClosedError, match="test-pool is closed"):
        asyncio.run(pool.run(int))


def test_closing_tells_those_who_wait(pool: ThreadPool, gate: Gate) -> None:
    """Closing lets the running function end and drops the waiting one, whose caller gets an error."""

    async def main() -> None:
        running = asyncio.create_task(pool.run(gate.wait))
        await gate.until_entered()
        waiting = asyncio.create_task(pool.run(gate.wait))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(pool.close))
        with pytest.raises(PoolClosedError, match="closed before its turn"):
            await waiting
        gate.opened.set()
        assert await running == "done"
        await closing

    asyncio.run(main())


def test_cancelling_while_closing_stays_a_cancellation(pool: ThreadPool, gate: Gate) -> None:
    """A caller that is cancelled itself sees its own cancellation, even when the pool was closed meanwhile."""

    async def main() -> None:
        running = asyncio.create_task(pool.run(gate.wait))
        await gate.until_entered()
        waiting = asyncio.create_task(pool.run(gate.wait))
        await asyncio.sleep(0)
        waiting.cancel()
        closing = asyncio.create_task(asyncio.to_thread(pool.close))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.opened.set()
        await asyncio.gather(running, closing)

    asyncio.run(main())


class Hanging:
    """A plug-in whose method returns when the gate is opened, and not before."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def embed_query(self) -> str:
        return self._gate.wait()

    def __call__(self) -> str:
        return self._gate.wait()


@pytest.mark.parametrize(("method", "name"), [("embed_query", "Hanging.embed_query"), ("__call__", "Hanging")])
def test_closing_does_not_wait_for_ever(gate: Gate, caplog: pytest.LogCaptureFixture, method: str, name: str) -> None:
    """What runs longer than closing waits is left to itself, and named; what waits for a thread is dropped."""
    pool = ThreadPool("impatient", threads=1, patience=0)
    hanging = Hanging(gate)

    async def main() -> None:
        running = asyncio.create_task(pool.run(hanging if method == "__call__" else hanging.embed_query))
        await gate.until_entered()
        waiting = asyncio.create_task(pool.run(int))
        await asyncio.sleep(0)
        await asyncio.to_thread(pool.close)
        await asyncio.to_thread(pool.close)
        with pytest.raises(PoolClosedError):
            await waiting
        gate.opened.set()
        assert await running == "done"

    asyncio.run(main())
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert f"{__name__}.{name} did not return within 0 s" in warning.getMessage()


def test_closing_waits_a_while(caplog: pytest.LogCaptureFixture, gate: Gate) -> None:
    """What ends in time is waited for, and nothing is said."""
    pool = ThreadPool("patient", threads=2, patience=PATIENCE)

    async def main() -> None:
        running = asyncio.create_task(pool.run(gate.wait))
        await gate.until_entered()
        closing = asyncio.create_task(asyncio.to_thread(pool.close))
        gate.opened.set()
        assert await running == "done"
        await closing

    asyncio.run(main())
    assert caplog.records == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("patient")]


def test_a_function_that_hangs_does_not_keep_the_process() -> None:
    """The interpreter exits while a plug-in hangs, whether or not the pool was closed."""
    program = """
import asyncio, sys, threading
from retrieval_core.run.threads import ThreadPool

pool = ThreadPool("hanging", threads=1, patience=0)
entered = threading.Event()

def hang():
    entered.set()
    threading.Event().wait()

async def main():
    asyncio.create_task(pool.run(hang))
    await asyncio.to_thread(entered.wait)

asyncio.run(main())
if "close" in sys.argv:
    pool.close()
"""
    for argument in ("close", "leave"):
        subprocess.run([sys.executable, "-c", program, argument], check=True, timeout=PATIENCE)


def test_a_function_that_comes_while_the_threads_end_is_refused() -> None:
    """It would wait for ever: nobody is left to run it."""
    threads = DaemonExecutor("ending", 1)
    assert threads.submit(int, 3).result(PATIENCE) == 3
    threads.stop(PATIENCE)
    assert threads.submit(int, 4).cancelled()


def test_threads_of_a_pool_that_nobody_uses_end() -> None:
    """A pool that was never closed leaves no threads behind."""
    pool = ThreadPool("forgotten", threads=1, patience=PATIENCE)
    thread = asyncio.run(pool.run(threading.current_thread))
    del pool
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("patience", [None, PATIENCE])
def test_a_forked_child_gets_threads_of_its_own(patience: float | None) -> None:
    """Threads do not survive a fork, and work handed to them in the child would wait for ever."""
    pool = ThreadPool("forked", threads=1, patience=patience)
    assert asyncio.run(pool.run(lambda: "parent")) == "parent"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if asyncio.run(pool.run(lambda: "child")) == "child" else 1
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.close()
