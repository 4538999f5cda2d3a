"""Calling coroutines from synchronous code, also where an event loop is already running."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from concurrent.futures import CancelledError
from threading import RLock, Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeVar

from retrieval_core.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

PATIENCE = 5.0
logger = logging.getLogger("retrieval_core")


class SyncBridge:
    """Runs coroutines on one background event loop, which starts with the first call.

    It works in notebooks and inside other running loops, because it uses neither of them. After a fork the child gets
    a loop of its own: threads do not survive a fork.
    """

    def __init__(self) -> None:
        self._lock = RLock()  # the garbage collector may close a stream while it is held
        self._runner: asyncio.Runner | None = None
        self._thread: Thread | None = None
        self._process = os.getpid()
        self._inherited: list[asyncio.Runner | None] = []
        self._begun: set[asyncio.Task[object]] = set()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result; an interrupt of the caller cancels it.

        Raises:
            RuntimeError: It was called from the background loop itself, which would then wait for itself.
            ServiceError: The loop was closed before the coroutine had ended.
        """
        self._forget_what_a_fork_left()
        with self._lock:
            if self._thread is current_thread():
                coroutine.close()
                msg = (
                    "a synchronous method was called from inside an asynchronous one; await the one with an 'a' before"
                )
                raise RuntimeError(msg)
            future = asyncio.run_coroutine_threadsafe(coroutine, self._running_loop())
        try:
            return future.result()
        except CancelledError as error:
            msg = "it was closed while this call was under way"
            raise ServiceError(msg) from error
        except BaseException:
            future.cancel()
            raise

    def is_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether a loop is the background loop of today, and runs."""
        runner = self._runner
        return runner is not None and self._process == os.getpid() and runner.get_loop() is loop

    def run_or_leave(self, make: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run what cleans up, and wait for it where that can be done.

        In the background loop's own thread, where the garbage collector may call it, it is begun alone. When the
        interpreter ends, the loop does not run any more, and nothing is done.
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
            self._thread = Thread(target=_serve, args=(self._runner,), name="retrieval-sync", daemon=True)
            self._runner.get_loop()
            self._thread.start()
        return self._runner.get_loop()

    def _forget_what_a_fork_left(self) -> None:
        """In a child process, let go of the parent's loop and thread, and of a lock that some thread may have held.

        The loop is kept and not closed: it shares its file descriptors with the parent's, which must go on.
        """
        if self._process != os.getpid():
            self._inherited.append(self._runner)
            self._lock, self._runner, self._thread, self._process = RLock(), None, None, os.getpid()

    def close(self, patience: float = PATIENCE) -> None:
        """Stop the background loop, cancelling what still runs on it.

        The next call starts another one; closing twice is fine.

        Args:
            patience: How many seconds to wait for that. What has not ended then is left to itself, and logged as a
                warning; its thread does not keep the process from exiting.
        """
        self._forget_what_a_fork_left()
        with self._lock:
            runner, thread, self._runner, self._thread = self._runner, self._thread, None, None
        if runner is None or thread is None:
            return
        loop = runner.get_loop()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(patience)
        if thread.is_alive():
            logger.warning(
                "the event loop of synchronous calls did not end within %g s: something on it blocks, or goes on after "
                "it was cancelled; it is left to itself until the process ends",
                patience,
            )


def _serve(runner: asyncio.Runner) -> None:
    with runner:  # at its end it cancels the tasks that are left, and closes the loop
        runner.get_loop().run_forever()
