"""Blocking work off the event loop, in a bounded pool of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from retrieval_core.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class PoolSaturatedError(ServiceError):
    """Too much blocking work is waiting already; taking more would only make every caller slower."""


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
        self._capacity = threads + waiting
        self._pending = 0
        self._lock = Lock()
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function in the pool, with the caller's context variables, and wait for its result.

        Raises:
            PoolSaturatedError: As many functions as the pool may hold are running or waiting.
        """
        with self._lock:
            if self._pending >= self._capacity:
                msg = f"{self._name}: {self._pending} calls are running or waiting already; try again later"
                raise PoolSaturatedError(msg, self._name)
            self._pending += 1
        try:
            future = self._executor.submit(copy_context().run, partial(function, *args, **kwargs))
        except BaseException:
            self._release()
            raise
        future.add_done_callback(lambda _: self._release())
        return await asyncio.wrap_future(future)

    def _release(self) -> None:
        with self._lock:
            self._pending -= 1

    def close(self) -> None:
        """Refuse further work, drop what waits, and wait for what runs. Closing twice is fine."""
        self._executor.shutdown(wait=True, cancel_futures=True)
