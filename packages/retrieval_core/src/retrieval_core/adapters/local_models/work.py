"""Work of local models off the event loop: threads, slices, and cancellation."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from retrieval_core.errors import MissingExtraError, checked_count
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

A = TypeVar("A")
T = TypeVar("T")

# Each thread of bulk work holds some 40 MB.
_MOST_THREADS = 8


def thread_count(threads: int | None) -> int:
    """Return the given number of threads or, for ``None``, the number of this process's processors, at most 8.

    More threads than processors gained nothing where measured.

    Raises:
        InvalidParameterError: The number is less than 1.
    """
    if threads is not None:
        return checked_count(threads, "threads")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_THREADS)


class Pooled:
    """A plug-in that works in a thread pool of its own.

    Args:
        name: The pool's.
        threads: At least 1.
        batch_size: The most items of one call, at least 1.

    Raises:
        InvalidParameterError: A number is less than 1.
    """

    def __init__(self, name: str, threads: int, batch_size: int) -> None:
        self._batch_size = checked_count(batch_size, "batch_size")
        self._threads = checked_count(threads, "threads")
        self._pool = ThreadPool(name, threads)

    @property
    def batch_size(self) -> int:
        """The most items of one call. They are spread over the threads, so more calls at a time make nothing faster."""
        return self._batch_size

    async def aclose(self) -> None:
        """Wait for what runs, drop what waits, and refuse further calls. Closing twice is fine."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Do what :meth:`aclose` does, blocking."""
        self._pool.close()


class StopSignal:
    """Carries the cancellation of a coroutine to the thread that works for it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sent = False
        self._interrupt: Callable[[], None] | None = None

    def send(self) -> None:
        """Interrupt what runs now and what begins later. Does not block."""
        with self._lock:
            self._sent = True
            if self._interrupt is not None:
                self._interrupt()

    @contextmanager
    def reaching(self, interrupt: Callable[[], None]) -> Generator[None]:
        """Let the signal call a function while the block runs; at once if it was sent before.

        Args:
            interrupt: Makes the work in the block end early; it must be quick, and may be called in another thread.
        """
        with self._lock:
            self._interrupt = interrupt
            if self._sent:
                interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._interrupt = None


async def run_stoppable(pool: ThreadPool, function: Callable[[A, StopSignal], T], argument: A) -> T:
    """Run a function in a pool, with a signal that is sent where the caller is cancelled.

    Raises:
        ServiceError: As of :meth:`~retrieval_core.run.threads.ThreadPool.run`.
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
    """Process items in slices, a few at a time, and return the results in their order.

    A long list so leaves room in a pool for others. Without items, ``work`` is called once with none. The first
    failure, or a cancellation, ends all.

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
    """Turn an ImportError in the block into a :class:`MissingExtraError` that names the extra."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(extra, needed_for) from error
