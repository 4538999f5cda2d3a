"""Blocking work off the event loop, in a bounded pool of its own."""

from __future__ import annotations

import asyncio
import inspect
import os
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from retrieval_core.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

P = ParamSpec("P")
T = TypeVar("T")


class PoolSaturatedError(ServiceError):
    """Too much blocking work is waiting already; taking more would only make every caller slower."""


class PoolClosedError(ServiceError):
    """The pool was closed before the work was done; what uses it was closed while in use."""


class ThreadPool:
    """Runs blocking functions for coroutines.

    A thread cannot be cancelled: a coroutine that is cancelled, or runs out of time, leaves its function running to its
    end in the pool. So the work that may wait is bounded, and a full pool refuses instead of queueing for ever.

    Args:
        name: Prefix of the threads' names, and named in errors.
        threads: How many functions run at a time. The threads start when they are first needed.
        waiting: How many more may wait for a thread.
    """

    def __init__(self, name: str, threads: int, waiting: int = 1000) -> None:
        self._name = name
        self._threads = threads
        self._capacity = threads + waiting
        self._closed = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._process = os.getpid()
        self._pending = 0
        self._lock = Lock()
        self._executor = ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix=self._name)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the pool, with the caller's context variables, and wait for its result.

        Raises:
            PoolSaturatedError: As many functions as the pool may hold are running or waiting.
            PoolClosedError: The pool is closed, or was closed while the function waited for a thread.
        """
        if self._process != os.getpid():  # threads do not survive a fork
            self._start_afresh()
        with self._lock:
            if self._closed:
                raise PoolClosedError(f"{self._name} is closed", self._name)
            if self._pending >= self._capacity:
                msg = f"{self._name}: {self._pending} calls are running or waiting already; try again later"
                raise PoolSaturatedError(msg, self._name)
            self._pending += 1
        try:
            work = partial(_without_stop_iteration, partial(function, *args, **kwargs))
            future = self._executor.submit(copy_context().run, work)
        except BaseException:
            self._release()
            raise
        future.add_done_callback(lambda _: self._release())
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # Work dropped by close() looks cancelled, but nobody cancelled the caller, who must hear of it.
            task = asyncio.current_task()
            if self._closed and future.cancelled() and not (task and task.cancelling()):
                raise PoolClosedError(f"{self._name} was closed before its turn", self._name) from None
            raise

    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plug-in: await a coroutine function, and run one that is none, whatever its port says, in the pool.

        Raises:
            PoolSaturatedError: As of :meth:`run`.
        """
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        return cast("T", await self.run(function, *args, **kwargs))

    def _release(self) -> None:
        with self._lock:
            self._pending -= 1

    def close(self) -> None:
        """Refuse further work, drop what waits, and wait for what runs. Closing twice is fine."""
        self._closed = True
        if self._process != os.getpid():
            return
        self._executor.shutdown(wait=True, cancel_futures=True)


def _without_stop_iteration(function: Callable[[], T]) -> T:
    """Call a function; a future cannot hold a ``StopIteration``, and whoever waits for it would never hear of it."""
    try:
        return function()
    except StopIteration as error:
        msg = "it raised StopIteration"
        raise RuntimeError(msg) from error
