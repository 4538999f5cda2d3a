"""The bridge that runs coroutines from synchronous code, also where an event loop is already running."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import ContextVar, copy_context
from threading import TIMEOUT_MAX, Event, RLock, Thread, current_thread
from types import coroutine as as_generator_coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

from retrieval_core.errors import DeadlineExceededError, ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from concurrent.futures import Future
    from contextvars import Context
    from types import EllipsisType

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
