"""Usage statistics over all processes that query an index, in a small file beside it: numbers, no text of queries."""

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
"""How often counts are added to the file; a killed process loses no more than these seconds."""
CLOSE_SECONDS = 1.0
"""How long closing waits for others that write to the file, before it gives up the last counts."""


class UsageStats:
    """Keep usage statistics in a file across processes; an :class:`~retrieval_core.run.observe.Observer`.

    It counts in memory. A background thread adds the counts to the file from time to time, and so do closing and the
    end of the process. Queries never wait for that. Several processes can share one file. If the file cannot be
    written, or is of another kind, nothing is kept, and the log has a line at the level debug. The error raised by
    :func:`~retrieval_core.run.observe.read_totals` describes the problem.

    Args:
        path: The file; :func:`~retrieval_core.run.observe.totals_beside` names the one beside an index. The first count
            makes it, in an existing folder.
        every: Seconds between two additions, more than 0.
        now: The time since the epoch in seconds, for when counting began.
    """

    def __init__(self, path: str | Path, *, every: float = FLUSH_SECONDS, now: Callable[[], float] = time.time) -> None:
        self._keeper = _Keeper(os.fspath(path), every, now)
        # Also when nobody closes it, at the end of the process at the latest.
        self._finalizer = weakref.finalize(self, self._keeper.let_go)

    def query(self) -> AbstractContextManager[None]:
        """Count a query, and its failure or cancellation."""
        return self._keeper.counting().query()

    def span(self, stage: str) -> AbstractContextManager[StageSpan]:
        """Count a call."""
        return self._keeper.counting().span(stage)

    def answered(self, result: RetrievalResult) -> None:
        """Count a result."""
        self._keeper.counting().answered(result)

    def flush(self) -> None:
        """Add the new counts to the file. Blocks while another process does."""
        self._keeper.flush()

    def close(self) -> None:
        """Flush, waiting at most :data:`CLOSE_SECONDS` for others, and end the thread; it may be used again."""
        self._keeper.close()

    async def aclose(self) -> None:
        """Close without blocking the event loop."""
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _Keeper:
    """The state that the thread shares with :class:`UsageStats`, without keeping that alive."""

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
        """Return this process's metrics, and start the thread that adds them to the file."""
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
        self._end_thread()
        self.flush(CLOSE_SECONDS)

    def let_go(self) -> None:
        """Close what nobody uses any more; on an event loop, which must not wait, its thread does the rest."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.close()
        else:
            self._end_thread()

    def _end_thread(self) -> None:
        if self._process == os.getpid():
            with self._lock:
                stop, self._stop = self._stop, None
            if stop is not None:
                stop.set()

    def _flush_now_and_then(self, stop: Event) -> None:
        while not stop.wait(self._every):
            self.flush()
        self.flush(CLOSE_SECONDS)
