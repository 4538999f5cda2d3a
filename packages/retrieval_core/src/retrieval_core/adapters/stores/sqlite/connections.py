"""Threads with connections to one file: several readers and one writer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import finalize

from retrieval_core.adapters.stores.first_run import index_not_found, make_folder
from retrieval_core.adapters.stores.local import BUILD_ANEW, if_it_fails_again
from retrieval_core.adapters.stores.sqlite.changes import ChangeDetector
from retrieval_core.adapters.stores.sqlite.schema import FORMAT, check_sqlite, read_format
from retrieval_core.errors import (
    REPAIR,
    IndexBusyError,
    IndexFormatError,
    IndexNotFoundError,
    ServiceError,
    StoreError,
)
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from retrieval_core.adapters.stores.sqlite.changes import FileId, Mark
    from retrieval_core.adapters.stores.sqlite.schema import Preparation

T = TypeVar("T")

READERS = 4
"""Reading threads; a search is bound by memory bandwidth, so more would not help."""
CACHE_KIB = 16 * 1024
"""SQLite's page cache for each connection."""
PAGE_BYTES = 8192
"""Holds five vectors of 384 components almost without waste, where SQLite's usual 4,096 bytes hold two."""
BUSY_STEP = 0.1
"""Seconds that SQLite waits for another writer between two checks whether the caller still waits."""
IDLE = 20
"""What is held in memory is built again only after this many times as long as it took: a twentieth of the time."""
LEAST_PAUSE = 1.0
"""Seconds at least between two such attempts, as for a file whose state nothing tells within microseconds."""
OPCODES = 100_000
"""SQLite's virtual machine steps, some milliseconds, between two checks whether the caller still waits."""


class StaleReadError(Exception):
    """A read saw an older state than this process already knows; it is repeated."""


class OldFormatError(Exception):
    """An index of an older format was to be read; it has to be converted first."""


class DamagedError(Exception):
    """Data that was read is damaged."""


class _LeftError(Exception):
    """Another thread has just closed this thread's connection; it opens another one."""


class _AbandonedError(Exception):
    """The caller was cancelled; nobody sees this."""


class _Known(NamedTuple):
    """A thread's connection.

    Attributes:
        file: When it was opened, or last written to.
        is_frozen: Whether it was opened as ``immutable``, so that reads are invalid once the file has changed.
        departures: How often all idle connections had been closed when it was opened.
    """

    file: FileId | None
    connection: sqlite3.Connection
    is_frozen: bool = False
    departures: int = 0


class _Call:
    """One caller's work, which stops soon after the caller is cancelled."""

    def __init__(self) -> None:
        self._abandoned = False

    def abandon(self) -> None:
        self._abandoned = True

    def check(self) -> None:
        if self._abandoned:
            raise _AbandonedError

    @contextmanager
    def using(self, connection: sqlite3.Connection) -> Generator[None, None, None]:
        """Let the connection check now and then whether the caller still waits.

        Unlike ``interrupt()``, this cannot hit the gap between two statements, nor the next caller's work.
        """
        self.check()
        connection.set_progress_handler(lambda: self._abandoned, OPCODES)
        try:
            yield
        finally:
            connection.set_progress_handler(None, 0)


class Connections:
    """Runs functions on connections of its own threads.

    Args:
        path: The file; the first write makes it, and its folder.
        busy_timeout: Seconds that a writer waits for another process that writes.
        now: The time of day in seconds, by the clock of the file system.

    Attributes:
        searches: How many searches there were so far.
    """

    def __init__(self, path: Path, busy_timeout: float, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._readers = ThreadPool("sqlite-read", READERS)
        self._writer = ThreadPool("sqlite-write", 1)
        self._builder = ThreadPool("sqlite-build", 1)  # of its own: its connection is closed after each use
        self._of_thread = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._changes = ChangeDetector(path, self._rest, partial(_connect_to_count, path), self._open, now)
        self._idle = threading.Lock()
        self._of_threads = set[sqlite3.Connection]()
        self._in_use = set[sqlite3.Connection]()
        self._departures = 0
        self._named: tuple[Mark, str | None] | None = None
        self._held: tuple[Mark, Any] | None = None
        self._missed: tuple[Mark | None, int] | None = None
        self.searches = 0
        self._idle_until = 0.0
        # What is collected without having been closed lets go of the file as quietly.
        finalize(self, _close_all, self._open).atexit = False

    async def read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in a read transaction, again when it raises :class:`StaleReadError`.

        Raises:
            IndexNotFoundError: There is no index yet.
            StoreError: The index cannot be read.
        """
        call = _Call()
        return await self._run(self._readers, partial(self._read, function, call), call)

    async def version(self, name: Callable[[sqlite3.Connection], str]) -> str | None:
        """Return what names the state of the index, read only where that may have changed since the last time.

        Args:
            name: Reads it.

        Raises:
            IndexNotFoundError: There is no index yet.
            StoreError: The index cannot be read.
        """
        # Marked before it is read: what is committed in between has the next mark, and is read again.
        mark, known = self._changes.mark(), self._named
        if mark is not None and known is not None and known[0] == mark:
            return known[1]

        def work(connection: sqlite3.Connection) -> str:
            named = name(connection)
            if mark is None:
                self._changes.renew()
            return named

        named = await self.read(work)
        if mark is not None and self._changes.is_settled(mark):
            self._named = mark, named
        return named

    def hold(self, build: Callable[[sqlite3.Connection], T | None]) -> T | None:
        """Return what was built of the state that the file has now, within microseconds; ``None`` if there is nothing.

        It is built in a thread when it is missing again after a search, nothing was written in between, and the
        last building is :data:`IDLE` times as long ago as it took.

        Args:
            build: Builds it in a read transaction.
        """
        mark = self._changes.mark()
        if mark is not None and self._held is not None:
            if self._held[0] == mark:
                return self._held[1]
            self._held = None  # something was written
        missed, self._missed = self._missed, (mark, self.searches)
        is_again = missed is not None and missed[0] == mark and missed[1] < self.searches
        is_due = is_again and time.monotonic() >= self._idle_until
        if is_due and (mark is None or self._changes.is_settled(mark)):
            self._idle_until = inf  # until this one has ended
            try:
                self._builder.start(partial(self._build, build))
            except ServiceError:  # it is closed, or has more to do than it can
                self._idle_until = 0.0
        return None

    async def load(self, build: Callable[[sqlite3.Connection], T | None]) -> None:
        """Build what :meth:`hold` returns; after a write, this waits until the next one can be told from it.

        Raises:
            IndexNotFoundError: There is no index yet.
            StoreError: The index cannot be read.
        """
        await self.read(lambda _: self._changes.renew())
        mark = self._changes.mark()
        if mark is None or self._held is None or self._held[0] != mark:
            await asyncio.sleep(0.0 if mark is None else max(0.0, self._changes.seconds_to_settle(mark)))
            await self._builder.run(self._build, build)

    def _build(self, build: Callable[[sqlite3.Connection], Any]) -> None:
        began = time.monotonic()
        with suppress(Exception):  # the searches themselves raise what is wrong with the file
            self._read(lambda _: self._changes.renew(), _Call())
            # Marked before it is read, as for the version.
            mark = self._changes.mark()
            if mark is not None and self._changes.is_settled(mark):
                built = self._read(build, _Call())
                self._held = mark, built  # also that there is nothing to hold of this state
        if (known := getattr(self._of_thread, "known", None)) is not None:
            self._forget(known)  # the fewer connections there are, the sooner all leave a file that was replaced
        self._idle_until = time.monotonic() + max(LEAST_PAUSE, IDLE * (time.monotonic() - began))

    def _read(self, function: Callable[[sqlite3.Connection], T], call: _Call) -> T:
        with self._translated():
            has_left = False
            while True:
                try:
                    known = self._known(writing=False)
                    try:
                        with self._using(known), call.using(known.connection):
                            result = _read(known.connection, function)
                    except Exception:  # half of a change looks like anything
                        self._forget(known)
                        if self._is_as_it_was(known):
                            raise
                    else:
                        if self._is_as_it_was(known):
                            return result
                except _LeftError:
                    continue
                except sqlite3.OperationalError as error:
                    if has_left or _code(error) != sqlite3.SQLITE_IOERR:
                        raise
                    has_left = True
                    self._leave()

    @contextmanager
    def _using(self, known: _Known) -> Generator[None, None, None]:
        """Keep another thread from closing a connection while it is used."""
        with self._idle:
            if known.departures != self._departures:
                raise _LeftError
            self._in_use.add(known.connection)
        try:
            yield
        finally:
            with self._idle:
                self._in_use.discard(known.connection)

    def _leave(self) -> None:
        """Close all idle connections of this process: SQLite shares between them what it knows of a file's log.

        After a backup was copied over the file, and the log removed, one connection that is left from before makes
        every new one fail.
        """
        with self._idle:
            self._departures += 1
            for connection in [each for each in self._of_threads if each not in self._in_use]:
                self._of_threads.discard(connection)
                self._open.remove(connection)
                connection.close()

    async def write(self, function: Callable[[sqlite3.Connection], T], prepare: Preparation) -> T:
        """Run a function in a write transaction, which is on the disk when this returns.

        Args:
            prepare: Makes the tables if there are none, and converts what an older version of this library wrote.

        Raises:
            IndexBusyError: Another process wrote for longer than this one waits.
            StoreError: The index cannot be written.
        """
        call = _Call()

        def work() -> T:
            with self._translated():
                while True:
                    known = self._known(writing=True)
                    try:
                        with self._using(known), call.using(known.connection):
                            return self._write(known.connection, function, prepare, call)
                    except _LeftError:
                        self._forget(known)
                    except Exception:
                        self._forget(known)
                        raise

        return await self._run(self._writer, work, call)

    def close(self) -> None:
        """Wait for what runs, and close the file. Blocks.

        All writes of this process are then checkpointed into the file itself, so that it can be copied or replaced
        without its ``-wal`` file.
        """
        for pool in (self._builder, self._readers, self._writer):
            pool.close()
        for connection in self._open:
            with suppress(sqlite3.Error):  # another process is at it, or the disk is full: it stays where it is
                if not connection.execute("PRAGMA query_only").fetchone()[0]:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _close_all(self._open)

    @staticmethod
    async def _run(pool: ThreadPool, work: Callable[[], T], call: _Call) -> T:
        try:
            return await pool.run(work)
        except asyncio.CancelledError:
            call.abandon()
            raise

    def _write(
        self,
        connection: sqlite3.Connection,
        function: Callable[[sqlite3.Connection], T],
        prepare: Preparation,
        call: _Call,
    ) -> T:
        deadline = time.monotonic() + self._busy_timeout
        if not read_format(connection, self._path):
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            _when_free(connection, "PRAGMA journal_mode = WAL", deadline, call)
        _when_free(connection, "BEGIN IMMEDIATE", deadline, call)
        try:
            prepare(connection)
            result = function(connection)
            call.check()  # a caller who left while this waited for its turn does not expect the change any more
            connection.execute("COMMIT")
            known: _Known = self._of_thread.known
            self._of_thread.known = known._replace(file=self._changes.file_id())  # the commit may have changed the file
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _known(self, *, writing: bool) -> _Known:
        """Return this thread's connection, opened anew where the file was deleted, replaced or copied over."""
        found = self._changes.file_id()
        known: _Known | None = getattr(self._of_thread, "known", None)
        if known is not None:
            is_left = known.departures != self._departures
            if known.file == found and found is not None and not is_left and not (known.is_frozen and self._has_rest):
                return known
            self._forget(known)
        self._changes.leave_former_file()
        if found is None and not writing:
            raise self._not_found()
        is_frozen, departures = False, self._departures
        try:
            connection = self._connect("rwc" if writing else "rw", writing=writing)
        except sqlite3.OperationalError as error:
            if writing or _code(error) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY} or found is None:
                raise
            if self._has_rest:
                msg = (
                    f"{self._path} cannot be read completely: what was written last is in {self._rest.name} beside it, "
                    "for which SQLite needs permission to write in the folder. Open the index once with it"
                )
                raise StoreError(msg) from error
            connection, is_frozen = self._connect("ro&immutable=1", writing=False), True
        else:
            found = self._changes.file_id()
        with self._idle:
            self._open.append(connection)
            self._of_threads.add(connection)
        self._of_thread.known = known = _Known(found, connection, is_frozen, departures)
        return known

    def _forget(self, known: _Known) -> None:
        """Close this thread's connection; the next call opens another one.

        After a failure, a statement that somebody still holds half read would keep it at the state of then.
        """
        del self._of_thread.known
        with self._idle:
            if known.connection in self._of_threads:  # otherwise another thread has closed it
                self._of_threads.discard(known.connection)
                self._open.remove(known.connection)
        known.connection.close()

    def _is_as_it_was(self, known: _Known) -> bool:
        """Whether a read is valid: a file that was opened as immutable must not have changed meanwhile."""
        return not known.is_frozen or (known.file == self._changes.file_id() and not self._has_rest)

    @property
    def _rest(self) -> Path:
        return self._path.with_name(f"{self._path.name}-wal")

    @property
    def _has_rest(self) -> bool:
        """Whether there are writes that SQLite has not yet checkpointed into the file."""
        try:
            return self._rest.stat().st_size > 0
        except FileNotFoundError:
            return False

    def _connect(self, mode: str, *, writing: bool) -> sqlite3.Connection:
        check_sqlite()
        if writing:
            make_folder(self._path.parent)
        connection = sqlite3.connect(
            _uri(self._path, mode),
            uri=True,
            timeout=min(BUSY_STEP, self._busy_timeout) if writing else self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,  # each belongs to one thread, but for interrupting and closing
        )
        try:
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute("PRAGMA synchronous = FULL" if writing else "PRAGMA query_only = ON")
            version = read_format(connection, self._path)
        except BaseException:
            connection.close()
            raise
        if version != FORMAT and not writing:
            connection.close()
            if version:
                msg = f"{self._path} has index format {version}"
                raise OldFormatError(msg)
            raise self._not_found()
        return connection

    def _not_found(self) -> IndexNotFoundError:
        return index_not_found(self._path, str(self._path))

    def _damaged(self, what: str) -> str:
        return f"{self._path} is damaged ({what}). {REPAIR}. If that fails, delete it and {BUILD_ANEW}"

    @contextmanager
    def _translated(self) -> Generator[None, None, None]:
        try:
            yield
        except DamagedError as error:
            raise IndexFormatError(self._damaged(str(error))) from error
        except UnicodeDecodeError as error:  # not even SQLite's own message can be read
            raise IndexFormatError(self._damaged("unreadable text")) from error
        except sqlite3.Error as error:
            match _code(error):
                case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                    msg = f"{self._path}: another process wrote for more than {self._busy_timeout:g} s; try again later"
                    raise IndexBusyError(msg) from error
                case sqlite3.SQLITE_NOTADB:
                    msg = f"{self._path} is not an index ({error}); choose another place, or delete it and {BUILD_ANEW}"
                    raise IndexFormatError(msg) from error
                case sqlite3.SQLITE_CORRUPT:
                    raise IndexFormatError(self._damaged(str(error))) from error
                case sqlite3.SQLITE_ERROR:  # a table is missing, or a statement of ours is wrong
                    msg = f"{self._path}: SQLite failed: {error}. {if_it_fails_again(self._path)}"
                    raise IndexFormatError(msg) from error
                case _ if self._path.is_dir():  # which code SQLite gives, depends on the system
                    msg = (
                        f"{self._path} is a folder, and an index of SQLite is a file; an index that LanceDB keeps "
                        "needs store.kind = 'lancedb' (--store lancedb)"
                    )
                    raise IndexFormatError(msg) from error
                case _:
                    raise StoreError(f"{self._path}: {error}{_advice_on(error, self._path)}") from error
        except OSError as error:
            msg = f"{self._path}: {error.strerror}"
            raise StoreError(msg) from error


def is_write_refused(error: StoreError) -> bool:
    """Return whether a write failed since this process may not write there."""
    cause = error.__cause__
    refusals = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
    return isinstance(cause, PermissionError) or (isinstance(cause, sqlite3.Error) and _code(cause) in refusals)


def _advice_on(error: sqlite3.Error, path: Path) -> str:
    with suppress(OSError):
        if _code(error) == sqlite3.SQLITE_IOERR and path.stat().st_nlink > 1:
            return (
                ". The file has another name too, a hard link, and SQLite can't use both at a time. "
                "Use one name everywhere, or make a copy"
            )
    return ""


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}"


def _connect_to_count(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(_uri(path, "rw"), uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()


def _read(connection: sqlite3.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
    while True:
        connection.execute("BEGIN")
        try:
            return function(connection)
        except StaleReadError:
            continue
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _when_free(connection: sqlite3.Connection, statement: str, deadline: float, call: _Call) -> None:
    """Execute a statement, trying until the deadline while another process writes."""
    while True:
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            call.check()
        else:
            return


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; errors of the Python module itself have none."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
