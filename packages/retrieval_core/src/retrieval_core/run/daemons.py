"""A pool of daemon threads, for code that may never return: the end of the process does not wait for it."""

from __future__ import annotations

import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Semaphore, Thread
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import finalize

if TYPE_CHECKING:
    from collections.abc import Callable

    Work: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]

T = TypeVar("T")


class DaemonThreads:
    """A :class:`~concurrent.futures.ThreadPoolExecutor` whose threads are not joined when the interpreter exits.

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
        finalize(self, _dismiss, self._queue, self._threads).atexit = False

    def submit(self, function: Callable[..., T], /, *args: object) -> Future[T]:
        """Queue a function; it runs as soon as a thread is free.

        Raises:
            RuntimeError: No further thread can be started.
        """
        future: Future[T] = Future()
        with self._lock:
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
                name = f"{self._name}_{len(self._threads)}"
                # It must not hold this object, which is let go of when nobody uses it any more.
                thread = Thread(target=_serve, args=(self._queue, self._idle), name=name, daemon=True)
                thread.start()
                self._threads.append(thread)
            self._queue.put((future, function, args))
        return future

    def stop(self, patience: float) -> None:
        """Drop what waits, and wait at most so many seconds for what runs."""
        with self._lock:
            while True:
                try:
                    work = self._queue.get_nowait()
                except Empty:
                    break
                if work is not None:
                    work[0].cancel()
            _dismiss(self._queue, self._threads)
        until = time.monotonic() + patience
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def _dismiss(queue: SimpleQueue[Work | None], threads: list[Thread]) -> None:
    for _ in threads:
        queue.put(None)


def _serve(queue: SimpleQueue[Work | None], idle: Semaphore) -> None:
    while (work := queue.get()) is not None:
        _run(*work)
        del work  # an idle thread keeps nothing alive
        idle.release()


def _run(future: Future[Any], function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*args)
    except BaseException as error:  # noqa: BLE001 - it is for whoever waits for the result
        future.set_exception(error)
        del future  # the error knows this frame, and the future would know the error
    else:
        future.set_result(result)
