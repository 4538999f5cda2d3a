"""The file of usage statistics: a table of numbers in SQLite, by stage and name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.errors import IndexFormatError, StoreError
from retrieval_core.run.observe.metrics import SECONDS, Histogram, MetricsSnapshot, StageMetrics

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
