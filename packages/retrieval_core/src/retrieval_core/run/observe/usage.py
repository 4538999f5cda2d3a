"""Usage statistics over all processes that query an index, in a small file beside it: numbers, no text of queries."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
import weakref
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.errors import IndexFormatError, StoreError
from retrieval_core.run.observe.metrics import SECONDS, Histogram, Metrics, MetricsSnapshot, StageMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Self

    from retrieval_core.run.observe.observer import StageSpan
    from retrieval_core.types import RetrievalResult

logger = logging.getLogger("retrieval_core")

FLUSH_SECONDS = 10.0
"""How often counts are added to the file; a killed process loses no more than these seconds."""
CLOSE_SECONDS = 1.0
"""How long closing waits for others that write to the file, before it gives up the last counts."""

Rows: TypeAlias = dict[tuple[str, str], float]
"""Numbers by stage (empty for whole queries) and name."""

APPLICATION_ID = 0x52455453  # "RETS"
VERSION = 1
BUSY_SECONDS = 10.0
"""How long to wait for other processes that add their counts, each for some milliseconds."""

_OF_QUERIES = ("answered", "failed", "cancelled", "cache_hits", "degraded_queries")
_OF_STAGES = ("calls", "attempts", "failures", "cancellations", "input_tokens", "output_tokens")
_SECONDS = "seconds"
_UP_TO = "seconds up to "
_LACKED = "degraded"
_SINCE = "since"
_ADD = (
    "INSERT INTO totals (stage, name, value) VALUES (?, ?, ?) "
    "ON CONFLICT (stage, name) DO UPDATE SET value = value + excluded.value"
)


@dataclass(frozen=True, slots=True)
class Totals:
    """Usage statistics of an index, over all processes.

    Attributes:
        since: When counting began.
        counts: Without the queries that are under way.
    """

    since: datetime
    counts: MetricsSnapshot


def totals_beside(index: str | Path) -> Path:
    """Return the file beside an index file or folder: for ``index.db`` that is ``index.stats.db``."""
    path = Path(index)
    name = path.name.removesuffix(".db")
    return path.with_name(f"{name}.stats.db")


def read_totals(path: str | Path) -> Totals | None:
    """Read a file of usage statistics; return ``None`` if there is none, or nothing was counted yet.

    Raises:
        IndexFormatError: The file is something else, or is damaged.
        StoreError: It cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        return None
    try:
        with closing(_connect(path, "ro")) as connection:
            if _is_blank(connection):
                return None
            _check(connection, path)
            table = connection.execute("SELECT stage, name, value FROM totals").fetchall()
        return _totals_of({(stage, name): value for stage, name, value in table})
    except (ValueError, TypeError, OverflowError, OSError) as error:  # an entry that this did not write
        raise _unusable(path, error) from error
    except sqlite3.Error as error:
        raise _translated(path, error) from error


def add_totals(
    path: str | Path, rows: Mapping[tuple[str, str], float], *, since: float, seconds: float = BUSY_SECONDS
) -> None:
    """Add numbers to those in a file, in one transaction; the file is made where there is none.

    Args:
        path: In an existing folder.
        since: Seconds since the epoch, kept where the file holds nothing yet.
        seconds: How long to wait for others that write to the file.

    Raises:
        IndexFormatError: The file is something else, or is damaged; it is not changed.
        StoreError: It cannot be written.
    """
    path = Path(path)
    try:
        with closing(_connect(path, "rwc", seconds)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            if _is_blank(connection):
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute(
                    "CREATE TABLE totals (stage TEXT, name TEXT, value NUMERIC NOT NULL, PRIMARY KEY (stage, name)) "
                    "WITHOUT ROWID"
                )
            else:
                _check(connection, path)
            connection.execute("INSERT OR IGNORE INTO totals VALUES ('', ?, ?)", (_SINCE, since))
            connection.executemany(_ADD, [(stage, name, value) for (stage, name), value in rows.items()])
    except sqlite3.Error as error:
        raise _translated(path, error) from error


def reset_totals(path: str | Path) -> bool:
    """Remove all numbers from a file, and return whether there were any.

    Raises:
        IndexFormatError: The file is something else, or is damaged; it is not changed.
        StoreError: It cannot be written.
    """
    path = Path(path)
    if not path.is_file():
        return False
    try:
        with closing(_connect(path, "rw")) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            if _is_blank(connection):
                return False
            _check(connection, path)
            return connection.execute("DELETE FROM totals").rowcount > 0
    except sqlite3.Error as error:
        raise _translated(path, error) from error


def rows_of(seen: MetricsSnapshot) -> Rows:
    """Return the numbers of a snapshot as rows."""
    rows: Rows = {("", name): getattr(seen, name) for name in _OF_QUERIES}
    rows |= {("", name): value for name, value in _rows_of_durations(seen.seconds)}
    rows |= {(stage, _LACKED): count for stage, count in seen.degraded.items()}
    for stage, metrics in seen.stages.items():
        rows |= {(stage, name): getattr(metrics, name) for name in _OF_STAGES}
        rows |= {(stage, name): value for name, value in _rows_of_durations(metrics.seconds)}
    return rows


def _rows_of_durations(durations: Histogram) -> Iterator[tuple[str, float]]:
    yield _SECONDS, durations.total_seconds
    for limit, count in zip((*durations.limits, inf), durations.counts, strict=True):
        yield f"{_UP_TO}{limit!r}", count


def _totals_of(rows: Rows) -> Totals | None:
    if ("", _SINCE) not in rows:
        return None
    whole = {name: int(rows.get(("", name), 0)) for name in _OF_QUERIES}
    named = sorted({stage for stage, _ in rows if stage})
    stages = {
        stage: StageMetrics(
            seconds=_durations(rows, stage), **{name: int(rows.get((stage, name), 0)) for name in _OF_STAGES}
        )
        for stage in named
        if any((stage, name) in rows for name in _OF_STAGES)
    }
    counts = MetricsSnapshot(
        queries=whole["answered"] + whole["failed"] + whole["cancelled"],
        degraded={stage: int(rows[stage, _LACKED]) for stage in named if (stage, _LACKED) in rows},
        seconds=_durations(rows, ""),
        stages=stages,
        **whole,
    )
    return Totals(datetime.fromtimestamp(rows["", _SINCE], UTC), counts)


def _durations(rows: Rows, stage: str) -> Histogram:
    """Return the durations of a stage, with the bucket limits of all versions that wrote to the file."""
    counts = {
        float(name.removeprefix(_UP_TO)): int(value)
        for (of, name), value in rows.items()
        if of == stage and name.startswith(_UP_TO)
    }
    limits = tuple(sorted({*SECONDS, *counts} - {inf}))
    inside = tuple(counts.get(limit, 0) for limit in (*limits, inf))
    return Histogram(limits, inside, float(rows.get((stage, _SECONDS), 0)))


def _connect(path: Path, mode: str, seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=seconds, isolation_level=None)


def _is_blank(connection: sqlite3.Connection) -> bool:
    return not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]


def _check(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != APPLICATION_ID:
        raise _unusable(path, "it holds something else")
    if version != VERSION:
        raise _unusable(path, f"its version is {version}, and this program knows {VERSION}")


def _unusable(path: Path, reason: object) -> IndexFormatError:
    msg = f"{path} holds no usage statistics that can be read ({reason}); remove it, and counting begins anew"
    return IndexFormatError(msg)


def _translated(path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return _unusable(path, error)
    return StoreError(f"{path}: {error}")


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
