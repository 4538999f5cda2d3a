from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.local_models.work import in_slices, needing_extra, run_stoppable, thread_count
from retrieval_core.errors import InvalidParameterError, MissingExtraError
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.adapters.local_models.work import StopSignal

PATIENCE = 30.0


def test_thread_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default one thread a processor that the process may use, eight at most; fewer than one is an error."""

    def three(_: int) -> set[int]:
        return {0, 1, 2}

    monkeypatch.setattr(os, "sched_getaffinity", three, raising=False)
    assert thread_count(None) == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert thread_count(None) == 8
    assert thread_count(20) == 20
    with pytest.raises(InvalidParameterError, match="threads must be a whole number of at least 1, got 0"):
        thread_count(0)


@pytest.mark.parametrize(("count", "size", "expected"), [(0, 2, [()]), (1, 2, [(0,)]), (5, 2, [(0, 1), (2, 3), (4,)])])
def test_slices(count: int, size: int, expected: list[tuple[int, ...]]) -> None:
    """Slices come back in the order of the items; without items there is one empty slice."""

    async def work(part: Sequence[int]) -> tuple[int, ...]:
        for _ in range(count - len(part)):  # later slices end first
            await asyncio.sleep(0)
        return tuple(part)

    assert asyncio.run(in_slices(range(count), size, 3, work)) == expected


def test_no_more_slices_than_workers() -> None:
    """At any time as many slices are worked on as there are workers."""
    running: list[int] = []
    most: list[int] = []

    async def work(part: Sequence[int]) -> None:
        running.append(part[0])
        most.append(len(running))
        await asyncio.sleep(0)
        running.remove(part[0])

    asyncio.run(in_slices(range(20), 1, 3, work))
    assert max(most) == 3


def test_a_failure_ends_the_rest() -> None:
    """The first failure is raised, and no further slice is begun."""
    begun: list[int] = []

    async def work(part: Sequence[int]) -> None:
        begun.append(part[0])
        await asyncio.sleep(0)
        if part[0] == 1:
            raise RuntimeError("broken")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="broken"):
            await in_slices(range(100), 1, 2, work)
        before = len(begun)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(begun) == before < 10

    asyncio.run(main())


def test_a_cancelled_call_sends_its_signal() -> None:
    """Who no longer waits tells the thread that works for it."""
    pool = ThreadPool("test-work", 1)
    running, told = threading.Event(), threading.Event()

    def work(argument: str, stop: StopSignal) -> str:
        with stop.reaching(told.set):
            running.set()
            assert told.wait(PATIENCE)
        return argument

    async def main() -> None:
        task = asyncio.create_task(run_stoppable(pool, work, "x"))
        assert await asyncio.to_thread(running.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(told.wait, PATIENCE)

    asyncio.run(main())
    pool.close()


def test_a_missing_extra() -> None:
    """An import that fails becomes the error that names the extra."""
    with (
        pytest.raises(MissingExtraError, match=r"The model needs the extra.*\[local\]"),
        needing_extra("local", "The model"),
    ):
        raise ImportError("no module")
