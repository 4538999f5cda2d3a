"""Calls of plug-ins as tasks of their own, which a caller can abandon even if they ignore their cancellation."""

from __future__ import annotations

import asyncio
import logging
import sys
from threading import Event, Thread
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary, WeakSet

from retrieval_core.errors import as_exception

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator
    from contextlib import AbstractAsyncContextManager

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


def start_task(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task; from Python 3.12 on it runs up to its first wait at once, and many calls are then done."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


async def wait_or_abandon(
    task: asyncio.Task[T], begin_timeout: Callable[[], AbstractAsyncContextManager[object]], name: str
) -> T:
    """Return a task's result; when the time is over or the caller is cancelled, cancel the task.

    A task that goes on for longer than :data:`GRACE_SECONDS` is left behind with a warning in the log, and ended after
    :data:`CLEANUP_SECONDS`. One that ends by itself, with a result or an error, has just made it.

    Args:
        task: Awaits a :class:`StoppableCall`.
        begin_timeout: Returns the context that bounds the wait.
        name: Of the call, for the warning.

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
                _leave_behind(task, name)
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


class StoppableCall(Generic[T]):
    """Awaits a plug-in's coroutine, and closes it when its abandoned task is cancelled once more.

    Args:
        coroutine: Not begun yet.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        """Return what the coroutine returns."""
        coroutine = self._coroutine
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


def as_coroutine(value: Awaitable[T]) -> Coroutine[Any, Any, T]:
    """Return an awaitable as a coroutine."""
    return cast("Coroutine[Any, Any, T]", value) if isinstance(value, CoroutineType) else _awaiting(value)


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
