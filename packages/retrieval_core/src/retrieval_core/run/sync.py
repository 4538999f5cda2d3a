"""Coroutines and event loops: calls from synchronous code, streams of events, and calls that callers share."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from threading import TIMEOUT_MAX, Event, RLock, Thread, current_thread
from types import coroutine as as_generator_coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import WeakKeyDictionary, finalize

from retrieval_core.errors import DeadlineExceededError, ServiceError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
    from concurrent.futures import Future
    from contextvars import Context
    from types import EllipsisType
    from typing import Any

T = TypeVar("T")

PATIENCE = 5.0
GRACE = 1.0
"""Seconds that a loop which is late has at least to take its next turn."""
logger = logging.getLogger("retrieval_core")
_IS_SYNC_CALL: ContextVar[bool] = ContextVar("_IS_SYNC_CALL", default=False)


def is_sync_call() -> bool:
    """Return whether the running coroutine serves a caller of a synchronous method."""
    return _IS_SYNC_CALL.get()


def has_loop() -> bool:
    """Return whether an event loop is running on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _NeedsLoop:
    """What a coroutine yields that cannot go on without an event loop."""


NEEDS_LOOP = _NeedsLoop()


@as_generator_coroutine
def to_a_loop() -> Generator[_NeedsLoop]:
    """Go on in an event loop; await this before anything that needs one, and before any code of others.

    It does nothing if a loop is running. Otherwise the coroutine was begun by :meth:`SyncBridge.run_here`, which moves
    it, with its context variables, to its background loop.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        yield NEEDS_LOOP


def begin(coroutine: Coroutine[Any, Any, T]) -> tuple[T] | None:
    """Run a coroutine without an event loop, up to its end or to where it awaits :func:`to_a_loop`.

    Returns:
        Its result; ``None`` if it needs a loop to go on.

    Raises:
        RuntimeError: It awaited something else.
    """
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        return (end.value,)
    if waits_for is not NEEDS_LOOP:
        coroutine.close()
        msg = f"{coroutine.__qualname__} waits for {waits_for!r:.80} without an event loop; await to_a_loop() first"
        raise RuntimeError(msg)
    return None


class SyncBridge:
    """Runs coroutines on one background event loop, in a thread that starts with the first call.

    It works in notebooks and inside other running loops. After a fork the child gets a loop of its own. Garbage
    collection stops the loop.

    Args:
        seconds: How long a call may take; ``None`` waits for ever. A loop that takes no turn for these and a tenth
            more is abandoned to whatever blocks it, and the next call starts another one.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds
        self._lock = RLock()  # the garbage collector may close a stream while it is held
        self._runner: asyncio.Runner | None = None
        self._thread: Thread | None = None
        self._process = os.getpid()
        self._inherited: list[asyncio.Runner | None] = []
        self._begun: set[asyncio.Task[object]] = set()
        self._finalizer: finalize[..., SyncBridge] | None = None

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float | EllipsisType | None = ...) -> T:
        """Run a coroutine to its end and return its result; an interrupt of the caller cancels it.

        Args:
            coroutine: Must bound itself in time: ``seconds`` only detect a blocked loop.
            seconds: In place of the bridge's own; ``None`` waits for ever.

        Raises:
            RuntimeError: It was called from the background loop itself, which would wait for itself.
            ServiceError: The loop was closed before the coroutine had ended.
            DeadlineExceededError: Something blocks the loop.
        """
        bound = self._seconds if seconds is ... else seconds
        self._forget_what_a_fork_left()
        with self._lock:
            if self._thread is current_thread():
                coroutine.close()
                msg = "a synchronous method was called inside an event loop; await its twin whose name begins with 'a'"
                raise RuntimeError(msg)
            loop = self._running_loop()
            token = _IS_SYNC_CALL.set(True)  # the coroutine runs in a copy of this context
            try:
                future = asyncio.run_coroutine_threadsafe(coroutine, loop)
            finally:
                _IS_SYNC_CALL.reset(token)
        try:
            return self._result(future, loop, None if bound is None else min(bound, TIMEOUT_MAX))
        except CancelledError as error:
            msg = "it was closed while this call was under way"
            raise ServiceError(msg) from error
        except BaseException:
            future.cancel()
            raise

    def run_here(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this thread, and on the background loop from where it awaits :func:`to_a_loop`.

        A query that finds everything in memory needs no loop and wakes no thread. If a loop is running on this thread,
        the coroutine runs on the background loop as a whole.

        Args:
            coroutine: Awaits :func:`to_a_loop` before anything that needs an event loop, and before code of others.

        Raises:
            RuntimeError: The coroutine awaited something else first.
            BaseException: As :meth:`run`.
        """
        if has_loop():
            return self.run(coroutine)
        context = copy_context()
        context.run(_IS_SYNC_CALL.set, True)
        if (result := context.run(begin, coroutine)) is not None:
            return result[0]
        return self.run(_go_on(coroutine, context))

    def _result(self, future: Future[T], loop: asyncio.AbstractEventLoop, seconds: float | None) -> T:
        while True:
            try:
                return future.result(seconds)
            except TimeoutError:
                if future.done() or seconds is None:
                    return future.result()
            turn = Event()
            with suppress(RuntimeError):  # it was closed; what ran on it is told then
                loop.call_soon_threadsafe(turn.set)
            if not turn.wait(max(GRACE, seconds / 10)) and not future.done():
                self._leave(loop)
                msg = (
                    f"a plug-in blocks the event loop of synchronous calls for more than {seconds:g} s: a coroutine "
                    "function that never awaits, or an observer. Make it an ordinary function, which runs in a thread"
                )
                raise DeadlineExceededError(msg)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave a loop to itself; it ends when it takes its next turn."""
        with self._lock:
            if self._runner is not None and self._runner.get_loop() is loop:
                self._runner = self._thread = None
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)

    def is_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a loop is the bridge's current background loop."""
        runner = self._runner
        return runner is not None and self._process == os.getpid() and runner.get_loop() is loop

    def run_or_leave(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a clean-up, and wait for it unless this is the loop's own thread (the garbage collector may call it).

        While the interpreter ends, nothing is done: the loop does not run any more.
        """
        if sys.is_finalizing():
            return
        if self._thread is not current_thread():
            self.run(make())
        elif self._runner is not None:
            loop = self._runner.get_loop()
            self._begun.add(task := loop.create_task(make()))
            task.add_done_callback(self._begun.discard)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._runner is None or self._thread is None or not self._thread.is_alive():
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            if self._finalizer is not None:
                self._finalizer.detach()
            self._thread = Thread(target=_serve, args=(self._runner,), name="retrieval-sync", daemon=True)
            self._finalizer = finalize(self, _stop, self._runner.get_loop(), os.getpid())
            self._finalizer.atexit = False
            self._thread.start()
        return self._runner.get_loop()

    def _forget_what_a_fork_left(self) -> None:
        """In a child process, let go of the parent's loop and thread, and of a lock that some thread may have held.

        The loop is kept and not closed: it shares its file descriptors with the parent's, which must go on.
        """
        if self._process != os.getpid():
            self._inherited.append(self._runner)
            self._lock, self._runner, self._thread, self._process = RLock(), None, None, os.getpid()

    def finish(self, closing: Callable[[], Coroutine[Any, Any, object]], patience: float = PATIENCE) -> None:
        """Run a closing coroutine, and stop the loop.

        Args:
            closing: Called again on another loop, where something blocks this one.
            patience: Seconds after which a loop that takes no turns counts as blocked.

        Raises:
            DeadlineExceededError: Something blocked the loop; ``closing`` ran on another one all the same.
        """
        try:
            self.run(closing(), patience)
        except DeadlineExceededError:
            self.run(closing(), patience)
            raise
        finally:
            self.close()

    def close(self, patience: float = PATIENCE) -> None:
        """Stop the background loop, cancelling what still runs on it; the next call starts another one.

        Args:
            patience: Seconds to wait for that. A loop that has not ended then is left to itself, with a warning in
                the log; its daemon thread does not keep the process from exiting.
        """
        self._forget_what_a_fork_left()
        with self._lock:
            runner, thread, self._runner, self._thread = self._runner, self._thread, None, None
            if self._finalizer is not None:
                self._finalizer.detach()
        if runner is None or thread is None:
            return
        _stop(runner.get_loop(), self._process)
        thread.join(patience)
        if thread.is_alive():
            logger.warning(
                "the event loop of synchronous calls did not end within %g s: something on it blocks, or goes on after "
                "it was cancelled; it is left to itself until the process ends",
                patience,
            )


async def _go_on(coroutine: Coroutine[Any, Any, T], context: Context) -> T:
    """Run the rest of a coroutine in the context it was begun in: a variable can only be reset there."""
    return await asyncio.get_running_loop().create_task(coroutine, context=context)


def _stop(loop: asyncio.AbstractEventLoop, process: int) -> None:
    """Have a loop end, unless it is that of the process this one was forked from, or has ended."""
    if process == os.getpid():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)


def _serve(runner: asyncio.Runner) -> None:
    with runner:  # at its end it cancels the tasks that are left, and closes the loop
        is_stopped = False
        while not is_stopped:
            # asyncio lets these out of a task, whose caller is told of them; all others still need the loop.
            with suppress(KeyboardInterrupt, SystemExit):
                runner.get_loop().run_forever()
                is_stopped = True


async def events_of(work: Callable[[Callable[[T], None]], Awaitable[object]]) -> AsyncGenerator[T]:
    """Yield the events that a coroutine function reports, as they come; closing the generator cancels it.

    It runs as a task of its own: it goes on while its events wait to be taken, and has one context throughout.

    Args:
        work: Called with the function that it reports each event to.

    Raises:
        Exception: What the work raises, after its last event.
    """
    queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue()

    async def tell() -> None:
        try:
            await work(lambda event: queue.put_nowait((event,)))
        finally:
            queue.put_nowait(None)

    task = asyncio.create_task(tell())
    try:
        while (event := await queue.get()) is not None:
            yield event[0]
        await task
    finally:
        if task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait((task,))
        else:  # whoever reads on another loop gets that loop's error, and need not wait for this one
            task.get_loop().call_soon_threadsafe(task.cancel)


def in_step(bridge: SyncBridge, events: AsyncGenerator[T]) -> Generator[T]:
    """Yield the events of an asynchronous generator in synchronous code; closing this one closes that.

    Raises:
        ServiceError: The bridge, on whose loop the events are made, was closed before the last one.
    """
    busy = asyncio.Lock()  # an interrupt may leave while an event is awaited, and that has to end first
    loop: asyncio.AbstractEventLoop | None = None

    async def following() -> tuple[T] | None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with busy:
            async for event in events:
                return (event,)
            return None

    async def leave() -> None:
        async with busy:
            await events.aclose()

    try:
        while (event := bridge.run(following())) is not None:
            yield event[0]
            if loop is not None and not bridge.is_on(loop):
                msg = "the stream ended before its time: it was closed with what it came from"
                raise ServiceError(msg)
    finally:
        if loop is not None and bridge.is_on(loop):
            bridge.run_or_leave(leave)


@dataclass(eq=False, slots=True)
class _Flight(Generic[T]):
    """A task that is under way, and how many callers wait for it."""

    task: asyncio.Task[T]
    waiting: int = 0


class SingleFlight(Generic[T]):
    """Runs one coroutine at a time for each key; callers with a key that is under way wait for the same one.

    It is a task of its own, cancelled when its last caller is. Callers of different event loops do not share. Where no
    loop is running, a coroutine that needs none is run where it is, and shared with nobody.
    """

    def __init__(self) -> None:
        self._flights: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Flight[T]]] = WeakKeyDictionary()

    async def run(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the key's coroutine, starting it if none is under way.

        Raises:
            BaseException: What the coroutine raised, to each caller.
        """
        begun: Coroutine[Any, Any, T] | None = None
        if not has_loop():
            begun = start()
            if (result := begin(begun)) is not None:
                return result[0]
            await to_a_loop()
        loop = asyncio.get_running_loop()
        flights = self._flights.setdefault(loop, {})
        flight = flights.get(key)
        if flight is None or flight.task.done():
            flight = flights[key] = _Flight(loop.create_task(start() if begun is None else begun))
        elif begun is not None:
            begun.close()
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                if flights.get(key) is flight:
                    del flights[key]  # whoever comes now begins anew
                flight.task.cancel()
