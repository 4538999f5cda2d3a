"""Whether an index file is as it was, told in microseconds and without reading it."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from os import stat
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTLED = 2.0
"""Seconds after which a change of a file has another time than the one before, whatever the file system's clock: the
coarsest, that of FAT, counts in steps of two. Two changes within one step look the same."""
SETTLED_FINE = 0.1
"""The same for a clock that shows parts of a second: those of ext4, XFS, APFS and NTFS count in steps of 10 ms at most.
"""

PATIENCE = 1.0
"""Seconds to wait for other threads to mark a moment, each within microseconds; then the file is read."""


class FileId(NamedTuple):
    """The identity of a database file, which differs after it was replaced, copied over or restored.

    In WAL mode the file itself changes only at checkpoints.

    Attributes:
        modified: Nanoseconds; a copy may bring the time of its original along.
        changed: Nanoseconds; the time of the last change of any kind, which cannot be set: a backup that is copied over
            the file may have its size, and the time that the file had when the backup was made.
    """

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class Mark(NamedTuple):
    """A moment of a file; two that are equal have nothing between them that was committed.

    Attributes:
        connection: Which connection counted the commits; two of them count differently.
        commits: That connection's count of commits by others.
    """

    file: FileId
    connection: int
    commits: int


class ChangeDetector:
    """Marks moments of a file by its identity, and by SQLite's count of commits on a connection of its own.

    Thread-safe. It marks nothing where it cannot be sure, as before the first :meth:`renew`, after the file was
    replaced, or where SQLite keeps no write-ahead log.

    Args:
        path: The file.
        log: Its write-ahead log.
        connect: Opens the file to read it, without waiting for locks.
        opened: Where the connection is listed while it is open.
        now: The time of day in seconds, by the clock of the file system.
    """

    def __init__(
        self,
        path: Path,
        log: Path,
        connect: Callable[[], sqlite3.Connection],
        opened: list[sqlite3.Connection],
        now: Callable[[], float],
    ) -> None:
        self._path = str(path)
        self._log = log
        self._connect = connect
        self._opened = opened
        self._now = now
        self._lock = Lock()
        self._file: FileId | None = None
        self._connection: sqlite3.Connection | None = None
        self._number = 0

    def file_id(self) -> FileId | None:
        """Return the identity of the file as it is now; ``None`` where there is none."""
        try:
            status = stat(self._path)  # noqa: PTH116 - half the time of a path's
        except FileNotFoundError:
            return None
        return FileId(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def mark(self) -> Mark | None:
        """Mark this moment; ``None`` where two moments could not be told apart.

        It takes microseconds: a look at the file's entry, and one at the memory that SQLite's connections share.
        """
        try:
            file = self.file_id()
            if file is None or not self._lock.acquire(timeout=PATIENCE):
                return None
            try:
                if self._connection is None or file != self._file:
                    return None
                commits = self._connection.execute("PRAGMA data_version").fetchone()[0]
                return Mark(file, self._number, commits)
            finally:
                self._lock.release()
        except (OSError, sqlite3.Error):
            return None

    def is_settled(self, mark: Mark) -> bool:
        """Whether a change of the file itself after the mark cannot have the same time as one before it."""
        return self.seconds_to_settle(mark) <= 0

    def seconds_to_settle(self, mark: Mark) -> float:
        """Return after how many seconds :meth:`is_settled`; not above 0 if it is."""
        last = max(mark.file.modified, mark.file.changed)
        step = SETTLED_FINE if last % 10**9 else SETTLED
        return last / 1e9 + min(step, SETTLED) - self._now()

    def leave_former_file(self) -> None:
        """Close the connection to a file that was replaced or copied over: SQLite opens no other one beside it."""
        with self._lock:
            if self._connection is not None and self.file_id() != self._file:
                self._close()

    def renew(self) -> None:
        """Open a connection to the file that there is now, unless that was done. Blocks; a reader must be open."""
        with self._lock:
            before = self.file_id()
            if self._connection is not None and before == self._file:
                return
            self._close()
            if before is None or not self._log.exists():
                return
            with suppress(OSError, sqlite3.Error):
                connection = self._connect()
                self._opened.append(connection)
                self._connection = connection
                connection.execute("PRAGMA data_version").fetchone()  # opens the log
                if self.file_id() == before:
                    self._file = before
                    self._number += 1
                    return
            self._close()  # it was replaced meanwhile, or cannot be read

    def _close(self) -> None:
        connection, self._connection, self._file = self._connection, None, None
        if connection is not None:
            self._opened.remove(connection)
            connection.close()
