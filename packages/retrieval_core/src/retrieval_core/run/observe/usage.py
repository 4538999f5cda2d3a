"""Totals over all processes that ask an index, kept in a small file beside it: numbers alone, no text of queries."""

from __future__ import annotations

import asyncio
import logging
import os
import time
import weakref
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from retrieval_core.run.observe.metrics import Metrics
from retrieval_core.run.observe.totals import BUSY_SECONDS, add_totals, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Self

    from retrieval_core.run.observe.observer import StageSpan
    from retrieval_core.run.observe.totals import Rows
    from retrieval_core.types import RetrievalResult

logger = logging.getLogger("retrieval_core")

FLUSH_SECONDS = 10.0
"""How long a count may be in this process alone; what a process that is killed loses."""
CLOSE_SECONDS = 1.0
"""How long closing waits for others that write to the file, before the last counts are given up."""


class UsageStats:
    """An :class:`~retrieval_core.run.observe.Observer` whose counts outlive the process.

    It counts in memory, and adds what is new to the totals in the file: when it is closed, when the process ends, and
    from a thread of its own every so often in between. Queries never wait for that. Several processes may add to one
    file at a time, and none of their counts is lost or counted twice. Where the file cannot be written, as in a folder
    that is only to be read, or is not such a file, nothing is kept; that is no more than a line of the log at the level
    debug. :func:`~retrieval_core.run.observe.read_totals` says what is wrong with a file.

    Args:
        path: The file; :func:`~retrieval_core.run.observe.totals_beside` names the one beside an index. The first count
            makes it, in a folder that is there.
        every: Seconds between two times that counts are added, more than 0.
        now: Tells the time since the epoch in seconds, for when counting began.
    """

    def __init__(self, path: str | Path, *, every: float = FLUSH_SECONDS, now: Callable[[], float] = time.time) -> None:
        self._keeper = _Keeper(os.fspath(path), every, now)
        # Also when nobody closes it, at the end of the process at the latest.
        self._finalizer = weakref.finalize(self, self._keeper.close)

    def query(self) -> AbstractContextManager[None]:
        """Count a query, and how it ends where that is not with a result."""
        return self._keeper.counting().query()

    def span(self, stage: str) -> AbstractContextManager[StageSpan]:
        """Count a call."""
        return self._keeper.counting().span(stage)

    def answered(self, result: RetrievalResult) -> None:
        """Count a result."""
        self._keeper.counting().answered(result)

    def flush(self) -> None:
        """Add to the file what was counted since the last time. Blocks while another process does."""
        self._keeper.flush()

    def close(self) -> None:
        """Do what :meth:`flush` does, but wait no more than a moment for others, and end the thread.

        Closing twice is fine, and it may be used again.
        """
        self._keeper.close()

    async def aclose(self) -> None:
        """Do what :meth:`close` does, without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Keeper:
    """What the thread shares with its owner, without keeping that alive."""

    def __init__(self, path: str, every: float, now: Callable[[], float]) -> None:
        self._path = path
        self._every = every
        self._now = now
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._process = os.getpid()
        self._metrics = Metrics()
        self._kept: Rows = {}
        self._since: float | None = None
        self._lock = Lock()
        self._flushing = Lock()
        self._stop: Event | None = None

    def counting(self) -> Metrics:
        """Return what counts in this process, and see to it that a thread adds its counts to the file."""
        if self._process != os.getpid():  # the parent adds what it counted; threads do not survive a fork
            self._start_afresh()
        if self._stop is None:
            with self._lock:
                if self._stop is None:
                    self._stop = Event()
                    self._since = self._since or self._now()
                    Thread(target=self._flush_now_and_then, args=(self._stop,), name="usage", daemon=True).start()
        return self._metrics

    def flush(self, seconds: float = BUSY_SECONDS) -> None:
        if self._process != os.getpid() or not self._flushing.acquire(timeout=seconds):
            return
        try:
            counted = rows_of(self._metrics.snapshot())
            fresh = {name: value - self._kept.get(name, 0) for name, value in counted.items()}
            fresh = {name: value for name, value in fresh.items() if value}
            if not fresh:
                return
            try:
                add_totals(self._path, fresh, since=self._since or self._now(), seconds=seconds)
            except Exception as error:  # noqa: BLE001 - statistics are never worth a failure
                logger.debug("the usage statistics were not kept: %s", error)
            else:
                self._kept = counted
        finally:
            self._flushing.release()

    def close(self) -> None:
        if self._process == os.getpid():
            with self._lock:
                stop, self._stop = self._stop, None
            if stop is not None:
                stop.set()
        self.flush(CLOSE_SECONDS)

    def _flush_now_and_then(self, stop: Event) -> None:
        while not stop.wait(self._every):
            self.flush()
