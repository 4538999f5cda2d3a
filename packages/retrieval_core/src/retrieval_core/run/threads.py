"""A bounded pool of threads for blocking functions."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread, get_ident
from types import CodeType, GeneratorType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeGuard, TypeVar, cast
from weakref import finalize

from retrieval_core.errors import ServiceError, as_exception
from retrieval_core.run.plugin_task import StoppableCall, as_coroutine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Work: TypeAlias = tuple[Future[Any], Callable[[], Any]]

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("retrieval_core")


class PoolSaturatedError(ServiceError):
    """As many functions as the pool may hold are running or waiting."""


class PoolClosedError(ServiceError):
    """The pool was closed before the function had run; its owner was closed while in use."""


class ThreadPool:
    """Runs blocking functions for coroutines.

    A thread cannot be cancelled: where its coroutine is cancelled or runs out of time, a function runs on to its end.
    So the queue is bounded, and a full pool refuses.

    Args:
        name: Prefix of the threads' names, and named in errors.
        threads: The most functions that run at a time.
        waiting: How many more may wait for a thread.
        patience: Seconds that :meth:`close` waits for running functions, for those that may never return. By default
            it waits until they have ended, as does the interpreter when it exits.
    """

    def __init__(self, name: str, threads: int, waiting: int = 1000, *, patience: float | None = None) -> None:
        self._name = name
        self._threads = threads
        self._capacity = threads + waiting
        self._patience = patience
        self._closed = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._process = os.getpid()
        self._pending = 0
        self._lock = Lock()
        self._running: dict[int, Callable[..., object]] = {}
        self._executor: ThreadPoolExecutor | DaemonExecutor
        if self._patience is None:
            self._executor = ThreadPoolExecutor(max_workers=self._threads, thread_name_prefix=self._name)
        else:
            self._executor = DaemonExecutor(self._name, self._threads)

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
            work = partial(function, *args, **kwargs)
            future = self._executor.submit(copy_context().run, self._in_thread, function, work)
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
        """Call a plug-in: await a coroutine function, run any other in the pool, and await an awaitable result.

        Raises:
            PoolSaturatedError: As :meth:`run`.
            Exception: What the plug-in raised, see :func:`~retrieval_core.errors.as_exception`.
            BaseException: The caller was cancelled, interrupted or closed.
        """
        try:
            returned: object
            if _is_coroutine_function(function):
                returned = await StoppableCall(as_coroutine(function(*args, **kwargs)))
            else:
                returned = await self.run(function, *args, **kwargs)
            return cast("T", await StoppableCall(as_coroutine(returned)) if _is_awaitable(returned) else returned)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            msg = "it was cancelled from within"
            raise RuntimeError(msg) from error
        except BaseException as error:
            if _is_closed_by(error) or (told := as_exception(error)) is error:
                raise
            raise told from error

    def _in_thread(self, function: Callable[..., object], work: Callable[[], T]) -> T:
        thread = get_ident()
        self._running[thread] = function
        try:
            return work()
        except BaseException as error:  # in this thread it is of nobody's but the function's own making
            if (told := as_exception(error)) is error:
                raise
            raise told from error
        finally:
            del self._running[thread]

    def _release(self) -> None:
        with self._lock:
            self._pending -= 1

    def close(self) -> None:
        """Refuse further calls, drop those that wait, and wait ``patience`` for those that run. Closing twice is fine.

        A function that still runs then is left running in its thread, with a warning in the log.
        """
        was_closed, self._closed = self._closed, True
        if self._process != os.getpid():
            return
        if isinstance(self._executor, ThreadPoolExecutor):
            self._executor.shutdown(wait=True, cancel_futures=True)
        elif not was_closed:
            assert self._patience is not None  # noqa: S101 - as it was when the threads were made
            self._executor.stop(self._patience)
            for function in list(self._running.values()):
                logger.warning(
                    "%s did not return within %g s after it was closed, and keeps running in its thread until the "
                    "process ends; give it a timeout, or make it a coroutine function",
                    name_of(function),
                    self._patience,
                )


class DaemonExecutor:
    """A :class:`~concurrent.futures.ThreadPoolExecutor` whose threads are not joined when the interpreter exits.

    Threads of asyncio and of anyio are joined, so a function that never returns would keep the process.

    Args:
        name: Prefix of the threads' names.
        most: How many threads there may be; they start when they are first needed.
    """

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._lock = Lock()
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._idle = Semaphore(0)
        self._threads: list[Thread] = []
        self._is_stopped = False
        finalize(self, self._queue.put, None).atexit = False

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        """Queue a function; it runs as soon as a thread is free. After :meth:`stop`, its future is cancelled.

        Raises:
            RuntimeError: No further thread can be started.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_stopped:
                future.cancel()
                return future
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"{self._name}_{len(self._threads)}"
                # It must not hold this object, which is let go of when nobody uses it any more.
                thread = Thread(target=_serve, args=(self._queue, self._idle), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._queue.put((future, partial(function, *args)))
        return future

    def stop(self, patience: float) -> None:
        """Cancel the functions that wait, and wait at most so many seconds for those that run."""
        with self._lock:
            self._is_stopped = True
            with suppress(Empty):
                while (item := self._queue.get_nowait()) is not None:
                    item[0].cancel()
            self._queue.put(None)
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def _serve(queue: SimpleQueue[Work | None], idle: Semaphore) -> None:
    while (item := queue.get()) is not None:
        _run(*item)
        del item  # an idle thread keeps nothing alive
        idle.release()
    queue.put(None)  # for the next thread


def _run(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is for whoever waits for the result
        future.set_exception(error)
        del future  # the error knows this frame, and the future would know the error
    else:
        future.set_result(result)


def _is_closed_by(error: BaseException) -> bool:
    """Whether a ``GeneratorExit`` closes the calling coroutine; a plug-in's own would come from a deeper frame."""
    return isinstance(error, GeneratorExit) and error.__traceback__ is not None and error.__traceback__.tb_next is None


def _is_coroutine_function(function: Callable[..., object]) -> bool:
    # The flag of a method's code is read ten times as fast as inspect decides.
    code = getattr(function, "__code__", None)
    return (isinstance(code, CodeType) and bool(code.co_flags & inspect.CO_COROUTINE)) or inspect.iscoroutinefunction(
        function
    )


def _is_awaitable(value: object) -> TypeGuard[Awaitable[object]]:
    """As :func:`inspect.isawaitable`, which takes several times as long for what is none, as nearly everything."""
    kind = type(value)
    return hasattr(kind, "__await__") or (kind is GeneratorType and inspect.isawaitable(value))


def name_of(function: Callable[..., object]) -> str:
    """Return where a function is defined; for an object that can be called, where its class is."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
