"""Calls of plug-ins: functions in a bounded pool of threads, coroutines in tasks that a caller can abandon."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Lock, Semaphore, Thread, get_ident
from types import CodeType, CoroutineType, GeneratorType
from types import coroutine as as_generator_coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet, finalize

from retrieval_core.errors import ServiceError, as_exception
from retrieval_core.ports.plugin import PLUGIN_CALLER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from contextlib import AbstractAsyncContextManager

    Work: TypeAlias = tuple[Future[Any], Callable[[], Any]]

P = ParamSpec("P")
T = TypeVar("T")

GRACE_SECONDS = 0.1
"""How long a caller waits for a call that it cancelled, before it goes on without it."""
CLEANUP_SECONDS = 5.0
"""How long an abandoned call may go on, as to close a connection, before it is ended."""
MOST_ABANDONED = 100
"""Abandoned calls that may go on at a time; further ones are ended at once."""
_MOST_CLOSINGS = 100

logger = logging.getLogger("retrieval_core")

_ignorable: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
"""How many more cancellations the plug-in in a cancelled task may catch."""
_abandoned: WeakSet[asyncio.Task[Any]] = WeakSet()
_endless: list[object] = []
"""Coroutines that cannot be closed. They are kept, since one that is collected may catch its errors for ever."""


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
        future = self.start(partial(function, *args, **kwargs), function)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            # Work dropped by close() looks cancelled, but nobody cancelled the caller, who must hear of it.
            task = asyncio.current_task()
            if self._closed and future.cancelled() and not (task and task.cancelling()):
                raise PoolClosedError(f"{self._name} was closed before its turn", self._name) from None
            raise

    def start(self, work: Callable[[], T], function: Callable[..., object] | None = None) -> Future[T]:
        """Run work in the pool, with the caller's context variables, without waiting for it.

        Args:
            work: What to run.
            function: What the log names if it never returns. Default: ``work``.

        Raises:
            PoolSaturatedError: As many functions as the pool may hold are running or waiting.
            PoolClosedError: The pool is closed.
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
            future: Future[T] = self._executor.submit(copy_context().run, self._in_thread, function or work, work)
        except BaseException:
            self._release()
            raise
        future.add_done_callback(lambda _: self._release())
        return future

    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plug-in: await a coroutine function, run any other in the pool, and await an awaitable result.

        Raises:
            PoolSaturatedError: As :meth:`run`.
            Exception: What the plug-in raised, see :func:`~retrieval_core.errors.as_exception`.
            BaseException: The caller was cancelled, interrupted or closed.
        """
        try:
            if getattr(function, "calls_plugin", False) is not True:  # a mock has every attribute
                return await self._call(function, *args, **kwargs)
            token = PLUGIN_CALLER.set(self._call)
            try:
                return await function(*args, **kwargs)
            finally:
                with suppress(ValueError):  # it was closed in another context
                    PLUGIN_CALLER.reset(token)
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

    async def _call(self, function: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
        returned: Any
        code = getattr(function, "__code__", None)  # its flag is read ten times as fast as inspect decides
        if (isinstance(code, CodeType) and code.co_flags & inspect.CO_COROUTINE) or inspect.iscoroutinefunction(
            function
        ):
            returned = await stoppable(function(*args, **kwargs))
        else:
            returned = await self.run(function, *args, **kwargs)
        kind = type(cast("object", returned))  # as inspect.isawaitable(), in a fraction of its time
        if hasattr(kind, "__await__") or (kind is GeneratorType and inspect.isawaitable(returned)):
            returned = await stoppable(cast("Awaitable[object]", returned))
        return returned

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


def name_of(function: Callable[..., object]) -> str:
    """Return where a function is defined; for an object that can be called, where its class is."""
    if getattr(function, "calls_plugin", False) is True:
        function = getattr(function.__self__, f"_{function.__name__}")  # type: ignore[attr-defined]
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def start_task(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task; from Python 3.12 on it runs up to its first wait at once, and many calls are then done."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


async def wait_or_abandon(
    task: asyncio.Task[T], begin_timeout: Callable[[], AbstractAsyncContextManager[object]], name: Callable[[], str]
) -> T:
    """Return a task's result; when the time is over or the caller is cancelled, cancel the task.

    A task that goes on for longer than :data:`GRACE_SECONDS` is left behind with a warning in the log, and ended after
    :data:`CLEANUP_SECONDS`. One that ends by itself, with a result or an error, has just made it.

    Args:
        task: Awaits :func:`stoppable`.
        begin_timeout: Returns the context that bounds the wait.
        name: Returns the name of the call, for the warning.

    Raises:
        TimeoutError: The time is over.
        BaseException: What the task raised.
    """
    try:
        await asyncio.sleep(0)  # many calls are done then, and need no timer
        if not task.done():
            async with begin_timeout():
                await _end_of(task)
    except GeneratorExit:
        task.cancel()
        raise
    except BaseException as error:
        if not task.done():
            _ignorable[task] = 1
            if not task.cancelling():  # an event loop that ends has cancelled all its tasks
                task.cancel()
            await asyncio.wait((task,), timeout=GRACE_SECONDS)
            if not task.done():
                _leave_behind(task, name())
        if not isinstance(error, TimeoutError) or not task.done() or task.cancelled():
            task.add_done_callback(_retrieve_error)
            raise
    return task.result()


def _end_of(task: asyncio.Task[Any]) -> asyncio.Future[None]:
    """Return a future that is done when the task is; cancelling it leaves the task alone."""
    ended: asyncio.Future[None] = task.get_loop().create_future()
    task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
    return ended


def _retrieve_error(task: asyncio.Task[Any]) -> None:
    """Prevent the warning about an error that nobody is left to retrieve."""
    if not task.cancelled():
        task.exception()


def _leave_behind(task: asyncio.Task[Any], name: str) -> None:
    logger.warning(
        "%s ignores that it was cancelled and is abandoned; it is ended after %g s. Let it raise "
        "asyncio.CancelledError instead of catching it.",
        name,
        CLEANUP_SECONDS,
    )
    if len(_abandoned) >= MOST_ABANDONED:
        _end(task)
    else:
        _abandoned.add(task)
        task.add_done_callback(_abandoned.discard)
        task.get_loop().call_later(CLEANUP_SECONDS, _end, task)  # which also keeps the task alive


def _end(task: asyncio.Task[Any]) -> None:
    _ignorable[task] = 0
    task.cancel()


@as_generator_coroutine
def stoppable(value: Awaitable[T]) -> Generator[Any, Any, T]:
    """Await what a plug-in returned, and close it when its abandoned task is cancelled once more."""
    coroutine = cast("Coroutine[Any, Any, T]", value) if isinstance(value, CoroutineType) else _awaiting(value)
    step: Any = coroutine.send
    given: Any = None
    while True:
        try:
            waits_for = step(given)
        except StopIteration as end:
            return end.value
        try:
            step, given = coroutine.send, (yield waits_for)
        except GeneratorExit:
            _close(coroutine)
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_to_end():
                _close(coroutine)
                raise
            step, given = coroutine.throw, error


async def _awaiting(value: Awaitable[T]) -> T:
    return await value


def _is_to_end() -> bool:
    """Whether the current task was abandoned and has had its chance to end by itself."""
    task = asyncio.current_task()
    left = None if task is None else _ignorable.get(task)
    if task is None or left is None:
        return False
    _ignorable[task] = left - 1
    return left < 1


def _close(coroutine: Coroutine[Any, Any, object]) -> None:
    """Close a coroutine; one that catches everything in a loop is asked several times."""
    for _ in range(_MOST_CLOSINGS):
        try:
            coroutine.close()
        except BaseException as error:  # noqa: BLE001 - nobody waits for it any more
            as_exception(error)
        else:
            return
    if not _endless:  # the frame of a thread that never ends is kept until the process is gone
        Thread(target=_hold, args=(_endless,), name="endless-plugins", daemon=True).start()
    _endless.append(coroutine)


def _hold(_coroutines: list[object]) -> None:
    Event().wait()
