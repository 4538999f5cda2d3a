"""Work of local models off the event loop: how much at a time, in what pieces, and stopping it when nobody waits."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from retrieval_core.adapters.local_models.stop import StopSignal
from retrieval_core.errors import InvalidParameterError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from retrieval_core.run.threads import ThreadPool

A = TypeVar("A")
T = TypeVar("T")

# Each thread of bulk work holds some 40 MB.
_MOST_THREADS = 8


def thread_count(threads: int | None) -> int:
    """Return a number of threads that was asked for or, without one, the processors of this process, at most 8.

    More threads than processors gained nothing where measured.

    Raises:
        InvalidParameterError: The number is less than 1.
    """
    if threads is not None:
        if threads < 1:
            msg = f"threads must be at least 1, got {threads}"
            raise InvalidParameterError(msg)
        return threads
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_THREADS)


async def run_stoppable(pool: ThreadPool, function: Callable[[A, StopSignal], T], argument: A) -> T:
    """Run a function in a pool; where the caller is cancelled, its signal is sent.

    Raises:
        PoolSaturatedError: As of :meth:`~retrieval_core.run.threads.ThreadPool.run`.
        PoolClosedError: As there.
    """
    stop = StopSignal()
    try:
        return await pool.run(function, argument, stop)
    except asyncio.CancelledError:
        stop.send()
        raise


async def in_slices(
    items: Sequence[A], size: int, workers: int, work: Callable[[Sequence[A]], Awaitable[T]]
) -> list[T]:
    """Hand items over in slices, a few at a time, and return the results in their order.

    So a long list leaves room in a pool for others. Without items, the work is called once with none. The first
    failure, or a cancellation, ends the whole.

    Args:
        size: Items of a slice, at least 1.
        workers: Slices at a time, at least 1.
    """
    starts = iter(range(0, max(1, len(items)), size))
    parts: dict[int, T] = {}

    async def take_slices() -> None:
        for start in starts:
            parts[start] = await work(items[start : start + size])

    tasks = [asyncio.create_task(take_slices()) for _ in range(workers)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return [parts[start] for start in sorted(parts)]


@contextmanager
def needing_extra(extra: str, needed_for: str) -> Generator[None]:
    """Turn an import that fails into the error that names the extra.

    Raises:
        MissingExtraError: Something that the block imports is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(extra, needed_for) from error
