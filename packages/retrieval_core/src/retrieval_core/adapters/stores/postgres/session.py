"""Connections to a PostgreSQL database for one schema, with mapped errors, and its state as other processes write."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, contextmanager, suppress
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format, TransactionStatus

from retrieval_core.adapters.stores.postgres import schema
from retrieval_core.adapters.stores.postgres.schema import APPLICATION, EXAMPLE, SentVector, State
from retrieval_core.config import without_credentials
from retrieval_core.errors import (
    ConfigurationError,
    IndexBusyError,
    IndexFormatError,
    IndexNotFoundError,
    RetrievalError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
    StoreError,
)
from retrieval_core.ports import Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping, Sequence

    from psycopg import AsyncCursor

logger = logging.getLogger(__name__)

SERVICE = "postgres"
IDLE = TransactionStatus.IDLE
# The deadline of a query cancels its statement. This only keeps work without a deadline from hanging for ever.
_SILENCE_SECONDS = 300
_CONNECT_SECONDS = 10
_FRESH_SECONDS = 1.0
"""For how long a version is believed without a question to the server."""
_LISTEN_SECONDS = 10.0
"""After how long a server is asked for notifications again: a read replica refuses them."""
_WARNING_SECONDS = 60
_WARNINGS = 60
"""How often it is said who holds a lock, before the wait ends."""
_MOST_CLAIMS = 100
"""Claims of one process at a time: each has a connection apart, so that their work finds one."""
_HOLDER = """
SELECT format('connection %%s from %%s since %%s; to end it: SELECT pg_terminate_backend(%%s)', pid,
    coalesce(host(client_addr), 'the same machine'), to_char(backend_start, 'YYYY-MM-DD HH24:MI'), pid)
FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND (classid::bigint << 32 | objid::bigint) = hashtextextended(%(name)s, 0)
"""
_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL jit = off; "
# The lock makes a writer wait for the one before it, and then see what it wrote, only at this level of isolation.
_WRITE = """
BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL jit = off;
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
"""
_STATE = """
SELECT application, format, embedder_id, dimension, analyzer, token, generation, chunks, words,
    EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('s.entries_by_embedding') AND indisvalid) AS is_indexed
FROM s.manifest
"""
_LOST = ("08", "57")
"""Classes of errors after which the server is gone, or the connection."""
_RETRIED = ("40", "53", "58")
"""Classes of errors that pass by: conflicts of transactions, missing resources, failures of the system."""
_INDEX = """
CREATE INDEX CONCURRENTLY entries_by_embedding ON s.entries
    USING hnsw ((embedding::halfvec({dimension})) halfvec_ip_ops)
"""
_MANIFEST = "manifest"
_SCHEMA = re.compile(r"\bs\.")
_ABSENT = (errors.UndefinedTable, errors.InvalidSchemaName, errors.UndefinedColumn)
_NOT_NOW = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "terminating")
"""Of refusals at connecting, those that pass by."""
_FULL = re.compile("too many (?:connections|clients)|remaining connection slots")
_ROOM = "Increase max_connections of the server, or decrease store.postgres.pool_size of each process."
_REACH = "Check that the server runs and can be reached."


class _VectorDumper(Dumper):
    """Sends a vector in pgvector's binary form, with the type that the statement expects."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: SentVector) -> bytes:
        return obj.data


class View:
    """One transaction, and the state of the index in it.

    Attributes:
        state: As of the beginning of the transaction; absent where another program's tables are read.
        is_written: Whether a transaction that writes has changed anything.
    """

    state: State

    def __init__(self, session: Session, connection: AsyncConnection[Any]) -> None:
        self._session = session
        self._connection = connection
        self.is_written = True

    async def run(self, statement: str, parameters: Mapping[str, Any] | None = None) -> AsyncCursor[Any]:
        """Execute a statement, and return the cursor, from which values come in their binary forms."""
        return await self._session.execute(self._connection, statement, parameters)

    async def rows(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the rows of a statement."""
        return await (await self.run(statement, parameters)).fetchall()

    async def row(self, statement: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """Return the first row of a statement."""
        return await (await self.run(statement, parameters)).fetchone()

    async def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each row of parameters."""
        if rows:
            async with self._connection.cursor() as cursor:
                await cursor.executemany(self._session.sql(statement), rows)

    async def copy(
        self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], types: Sequence[str] = ()
    ) -> None:
        """Write rows into a table, in PostgreSQL's binary form if the types of the columns are given.

        The type of a value that is in its binary form already is ``bytea``.
        """
        if rows:
            form = " (FORMAT BINARY)" if types else ""
            statement = self._session.sql(f"COPY s.{table} ({', '.join(columns)}) FROM STDIN{form}")
            async with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                if types:
                    copy.set_types(types)
                for row in rows:
                    await copy.write_row(row)


class Session:
    """Connections to one schema, a pool for each event loop.

    Args:
        url: Of the database.
        name: Of the schema of an index; blank for the tables of another program.
        location: Where the index is, for people.
        pool_size: The most connections of a pool.
        busy_timeout: Seconds that a write waits for another one.
        parameters: Of PostgreSQL, set in each transaction.
    """

    def __init__(
        self,
        url: str,
        name: str,
        location: str,
        *,
        pool_size: int,
        busy_timeout: float,
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url
        self._name = name
        self._location = location
        self._pool_size = pool_size
        self._busy_timeout = busy_timeout
        self._parameters = dict(parameters or {})
        self._quoted = f'"{name}".'
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()
        self._claims: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    def sql(self, statement: str) -> bytes:
        """Return a statement with the name of the schema in it."""
        return (_SCHEMA.sub(self._quoted, statement) if self._name else statement).encode()

    async def execute(
        self, connection: AsyncConnection[Any], statement: str, parameters: Mapping[str, Any] | None = None
    ) -> AsyncCursor[Any]:
        """Execute a statement, and return the cursor."""
        return await connection.execute(self.sql(statement), parameters, binary=True)

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[View]:
        """Give a consistent view of the index.

        Raises:
            IndexNotFoundError: Nothing was written yet.
            IndexFormatError: The schema belongs to another program, or to a newer version of this library.
            StoreError: The index cannot be read.
            ServiceError: The server failed, or cannot be reached.
        """
        async with self._connection() as connection, self._transaction(connection, _READ):
            view = View(self, connection)
            view.state = await self._state(connection)
            yield view

    @asynccontextmanager
    async def reading_others(self) -> AsyncGenerator[View]:
        """Give a consistent view of tables that another program filled.

        Raises:
            StoreError: A table cannot be read.
            ServiceError: The server failed, or cannot be reached.
        """
        async with self._connection() as connection, self._transaction(connection, _READ):
            yield View(self, connection)

    @asynccontextmanager
    async def writing(self, make: Manifest | None = None) -> AsyncGenerator[View]:
        """Give a transaction that is a write, after those of others; all of it is kept, or nothing.

        Args:
            make: The manifest of a new index, made if there is none.

        Raises:
            IndexNotFoundError: There is no index, and none is to be made.
            IndexBusyError: Another process wrote for longer than the session waits.
            RetrievalError: As of :meth:`reading`.
        """
        try:
            async with self._connection() as connection, self._transaction(connection, _WRITE):
                if make is not None and _MANIFEST not in await self._relations(connection):
                    await self._make(connection, make)
                view = View(self, connection)
                view.state = await self._state(connection, for_update=True)
                for migration in schema.MIGRATIONS[view.state.format - 1 :]:
                    await connection.execute(self.sql(migration))
                yield view
                if view.is_written:
                    await self._end_write(view)
        finally:  # so that this process sees its own write at once
            for watch in tuple(self._watches.values()):
                watch.forget()

    async def _end_write(self, view: View) -> None:
        """Name the new state of the index, and notify those who listen."""
        token = token_hex(16)
        row = await view.row(
            "UPDATE s.manifest SET generation = generation + 1, token = %(token)s, format = %(format)s "
            "RETURNING generation",
            {"token": token, "format": schema.newest_format()},
        )
        notice = {"channel": self._channel, "version": f"{token}:{row[0]}"}
        await view.run("SELECT pg_notify(%(channel)s, %(version)s)", notice)

    @asynccontextmanager
    async def claimed(self, work: str, *, is_patient: bool) -> AsyncGenerator[bool]:
        """Hold a lock of the server; see :meth:`Store.claimed`. It ends with its connection, which does nothing else.

        Raises:
            IndexBusyError: Another process has held it for an hour.
            RetrievalError: As of :meth:`reading`.
        """
        loop = asyncio.get_running_loop()
        claims = self._claims.setdefault(loop, _Pool(self._url, _MOST_CLAIMS))
        lock = {"name": f"retrieval-core {self._name} {work}"}
        with _translated(self._location):
            async with claims.connection() as connection:
                # A machine that is gone holds its locks for two minutes, in place of hours.
                await connection.execute(
                    f"SET tcp_keepalives_idle = 60; SET lock_timeout = '{_WARNING_SECONDS}s'".encode()
                )
                try:
                    is_ours = (
                        await self._lock(connection, lock, work) if is_patient else await self._try(connection, lock)
                    )
                    yield is_ours
                finally:
                    with suppress(psycopg.Error):  # the connection is lost, and the lock with it
                        await connection.execute("SELECT pg_advisory_unlock_all()")

    async def _try(self, connection: AsyncConnection[Any], lock: Mapping[str, Any]) -> bool:
        found = await self.execute(connection, "SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))", lock)
        return await found.fetchone() == (True,)

    async def _lock(self, connection: AsyncConnection[Any], lock: Mapping[str, Any], work: str) -> bool:
        for _ in range(_WARNINGS):
            with suppress(errors.LockNotAvailable):
                await self.execute(connection, "SELECT pg_advisory_lock(hashtextextended(%(name)s, 0))", lock)
                return True
            holder = await (await self.execute(connection, _HOLDER, lock)).fetchone()
            if holder is not None:
                logger.warning("%s: waiting for another process that is %s: %s", self._location, work, holder[0])
        msg = f"{self._location}: another process has been {work} for an hour. End it and try again."
        raise IndexBusyError(msg)

    async def index_vectors(self, dimension: int) -> None:
        """Make the index of vectors, unless another process does so; reading and writing go on meanwhile."""
        if dimension > schema.LARGEST_INDEXED:
            return
        with _translated(self._location):
            async with await _connect(self._url) as connection:
                lock = {"name": f"retrieval-core {self._name} vectors"}
                sql = "SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))"
                if await (await self.execute(connection, sql, lock)).fetchone() != (True,):
                    return
                if not (await self._state(connection)).is_indexed:
                    # A process that was killed here left an index that PostgreSQL doesn't use.
                    await connection.execute(self.sql("DROP INDEX CONCURRENTLY IF EXISTS s.entries_by_embedding"))
                    await connection.execute(self.sql(_INDEX.format(dimension=dimension)))

    async def version(self) -> str:
        """Name the state of the index; after the first call, this takes no request while nobody writes.

        PostgreSQL notifies this process of each write. Once a second it is asked all the same, as a lost connection
        says nothing.

        Raises:
            RetrievalError: As of :meth:`reading`.
        """
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            watch = self._watches[loop] = _Watch(self._url, self._channel)
        known = watch.known()
        if known is None:
            began, writes = monotonic(), watch.writes
            async with self.reading() as view:
                known = view.state.version
            watch.confirm(known, began, writes)
        return known

    async def aclose(self) -> None:
        """Close the running event loop's connections."""
        watch = self._watches.pop(asyncio.get_running_loop(), None)
        if watch is not None:
            await watch.close()
        for pools in (self._pools, self._claims):
            pool = pools.pop(asyncio.get_running_loop(), None)
            if pool is not None:
                await pool.close()

    @property
    def _channel(self) -> str:
        return f"retrieval:{self._name}"

    async def _state(self, connection: AsyncConnection[Any], *, for_update: bool = False) -> State:
        try:
            # The lock makes writers wait for one another; the statements after it see what the last one wrote.
            statement = _STATE + " FOR UPDATE" * for_update
            row = await (await self.execute(connection, statement)).fetchone()
        except _ABSENT as error:
            raise _AbsentError from error
        if row is None or row[0] != APPLICATION:
            raise _AbsentError
        _, version, embedder_id, dimension, analyzer, token, generation, chunks, words, is_indexed = row
        if version > schema.newest_format():
            msg = (
                f"{self._location} has index format {version}, and this version of retrieval-core reads formats up to "
                f"{schema.newest_format()}. Upgrade retrieval-core."
            )
            raise IndexFormatError(msg)
        is_waiting = False
        if dimension is not None:
            found = await self.execute(connection, "SELECT EXISTS (SELECT FROM s.entries WHERE embedding IS NULL)")
            is_waiting = (await found.fetchone() or (False,))[0]
        manifest = Manifest(embedder_id, dimension, analyzer)
        return State(manifest, version, token, generation, chunks, words, is_indexed, is_waiting)

    async def _relations(self, connection: AsyncConnection[Any]) -> list[str]:
        """Return the names of what is in the schema, as of this statement."""
        found = await self.execute(
            connection,
            "SELECT relname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname = %(name)s ORDER BY relname",
            {"name": self._name},
        )
        return [name for (name,) in await found.fetchall()]

    async def _make(self, connection: AsyncConnection[Any], manifest: Manifest) -> None:
        """Make the tables of a new index, unless another process does so first."""
        lock = {"name": f"retrieval-core {self._name}"}
        await self.execute(connection, "SELECT pg_advisory_xact_lock(hashtextextended(%(name)s, 0))", lock)
        relations = await self._relations(connection)
        if _MANIFEST in relations:
            return
        self._refuse_others(relations)
        encoding = await (await self.execute(connection, "SHOW server_encoding")).fetchone()
        if encoding != ("UTF8",):
            msg = f"{self._location}: the database has the encoding {encoding}; create one with the encoding UTF8"
            raise ConfigurationError(msg)
        if manifest.dimension is not None:
            await self._make_extension(connection, manifest.dimension)
        # For one that exists, PostgreSQL asks for the right to create schemas all the same.
        known = await self.execute(
            connection, "SELECT FROM pg_namespace WHERE nspname = %(name)s", {"name": self._name}
        )
        if await known.fetchone() is None:
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self._name}"'.encode())
        await connection.execute(self.sql(schema.create_tables(manifest.dimension)))
        await self.execute(
            connection,
            "INSERT INTO s.manifest VALUES (%(application)s, %(format)s, %(embedder)s, %(dimension)s, %(analyzer)s, "
            "'', 0, 0, 0, 0, 0, 0)",
            {
                "application": APPLICATION,
                "format": schema.newest_format(),
                "embedder": manifest.embedder_id,
                "dimension": manifest.dimension,
                "analyzer": manifest.analyzer,
            },
        )

    async def _make_extension(self, connection: AsyncConnection[Any], dimension: int) -> None:
        if dimension > schema.LARGEST_DIMENSION:
            msg = f"{self._location}: pgvector keeps at most {schema.LARGEST_DIMENSION} components, got {dimension}"
            raise ConfigurationError(msg)
        known = await self.execute(connection, "SELECT FROM pg_extension WHERE extname = 'vector'")
        if await known.fetchone() is not None:
            return
        advice = "Install pgvector at the server, and run in this database as its owner: CREATE EXTENSION vector"
        try:
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except (errors.FeatureNotSupported, errors.UndefinedFile, errors.InsufficientPrivilege) as error:
            msg = f"{self._location}: the extension vector (pgvector) is missing ({_said(error)}). {advice}"
            raise ConfigurationError(msg) from error

    def _refuse_others(self, relations: Sequence[str]) -> None:
        """Raise :class:`IndexFormatError` if a schema that has no index of ours is not empty."""
        if relations:
            msg = (
                f"{self._location}: the schema belongs to another program (it has {relations[0]!r:.80}), and was not "
                "changed. Set store.postgres.collection to another name."
            )
            raise IndexFormatError(msg)

    @asynccontextmanager
    async def _transaction(self, connection: AsyncConnection[Any], begin: str) -> AsyncGenerator[None]:
        timeouts = f"SET LOCAL statement_timeout = '{_SILENCE_SECONDS}s'; "
        timeouts += f"SET LOCAL lock_timeout = '{max(1, int(self._busy_timeout * 1000))}ms'"
        await connection.execute((begin + timeouts).encode())
        try:
            for name, value in self._parameters.items():
                await connection.execute("SELECT set_config(%s, %s, true)", (name, value))
            yield
            await connection.execute("COMMIT")
        except _AbsentError as error:
            await connection.execute("ROLLBACK")
            relations = await self._relations(connection)
            is_new = isinstance(error.__cause__, (errors.UndefinedTable, errors.InvalidSchemaName))
            if not (is_new and _MANIFEST in relations):  # else another process has made it since
                self._refuse_others(relations)
            msg = f"there is no index at {self._location}; make one with: retrieval index PATH…"
            raise IndexNotFoundError(msg) from error
        except BaseException:
            with suppress(psycopg.Error):
                await connection.execute("ROLLBACK")
            raise

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[AsyncConnection[Any]]:
        pool = self._pools.setdefault(asyncio.get_running_loop(), _Pool(self._url, self._pool_size))
        try:
            with _translated(self._location):
                async with pool.connection() as connection:
                    yield connection
        except _ExhaustedError as error:
            msg = f"{self._location}: all {self._pool_size} connections are busy. Increase store.postgres.pool_size."
            raise ServiceTimeoutError(msg, SERVICE) from error


class _Watch:
    """The version of an index, as the server's notifications tell it.

    Attributes:
        writes: How many notifications came.
    """

    def __init__(self, url: str, channel: str) -> None:
        self._url = url
        self._channel = channel
        self._version: str | None = None
        self._confirmed = 0.0
        self._tried = monotonic()
        self._is_listening = False
        self.writes = 0
        self._task: asyncio.Task[None] = asyncio.create_task(self._listen())

    def known(self) -> str | None:
        """Return the version if it was notified or read within a second; a lost connection is made again."""
        if self._task.done():
            self._version = None
            if monotonic() - self._tried > _LISTEN_SECONDS:
                self._tried = monotonic()
                self._task = asyncio.create_task(self._listen())
        is_fresh = self._is_listening and monotonic() - self._confirmed <= _FRESH_SECONDS
        return self._version if is_fresh else None

    def confirm(self, version: str, began: float, writes: int) -> None:
        """Note a version that was read, unless somebody has written since."""
        if self._is_listening and writes == self.writes:
            self._version, self._confirmed = version, began

    def forget(self) -> None:
        """Note that this process writes, so that it sees its own write at once; any thread may call it."""
        self.writes += 1
        self._version = None

    async def close(self) -> None:
        """Stop listening."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _listen(self) -> None:
        with suppress(psycopg.Error):  # then the server is asked each time
            async with await _connect(self._url) as connection:
                await connection.execute(f'LISTEN "{self._channel}"'.encode())
                self._is_listening = True
                try:
                    async for _ in connection.notifies():
                        self.forget()
                finally:
                    self._is_listening = False


class _ExhaustedError(Exception):
    """All connections were in use for too long."""


class _Connection(AsyncConnection[Any]):
    """A connection that a cancelled task leaves at once, whether the server answers or not.

    Attributes:
        left: Ends the statement that a task has left, in ten seconds if the server doesn't answer, and the connection.
    """

    left: asyncio.Future[Any] | None = None

    async def wait(self, gen: Any, *given: Any, **more: Any) -> Any:
        """Return the result of a request to the server; of all that a query needs, only this waits for it."""
        if self.left is not None:
            raise asyncio.CancelledError
        work = asyncio.ensure_future(super().wait(gen, *given, **more))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self.left = asyncio.ensure_future(self._end(work))
            raise

    async def _end(self, work: asyncio.Future[Any]) -> None:
        work.cancel()
        try:
            await asyncio.gather(work, return_exceptions=True)
        finally:
            await self.close()


class _Pool:
    """Connections of one event loop.

    The pool of psycopg makes whoever asks wait while it tries to connect, and does not say why it cannot.
    """

    def __init__(self, url: str, size: int) -> None:
        self._url = url
        self._free = asyncio.Semaphore(size)
        self._idle: list[_Connection] = []
        self._is_closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[_Connection]:
        """Lend a connection, a new one if none is idle; one that is lost is not used again."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            raise _ExhaustedError from error
        left = None
        try:
            connection = await self._sound() or await _connect(self._url)
            try:
                yield connection
            finally:
                left = connection.left
                if left is None and not self._is_closed and connection.info.transaction_status == IDLE:
                    self._idle.append(connection)
                elif left is None:
                    await connection.close()
        finally:
            if left is None:
                self._free.release()
            else:  # only then is there room for another one
                left.add_done_callback(lambda _: self._free.release())

    async def _sound(self) -> _Connection | None:
        """Return an idle connection that the server has not closed, the one that was used last."""
        while self._idle:
            connection = self._idle.pop()
            with suppress(psycopg.OperationalError):
                for _ in range(2):  # neither waits; the first reads why the server has ended it, the second that it has
                    connection.pgconn.consume_input()
                return connection
            await connection.close()
        return None

    async def close(self) -> None:
        """Close all idle connections; those in use are closed when they are given back."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop().close()


async def _connect(url: str) -> _Connection:
    given: dict[str, Any] = {**_OPTIONS, **conninfo_to_dict(url)}
    connection = await _Connection.connect(autocommit=True, **given)
    connection.adapters.register_dumper(SentVector, _VectorDumper)
    return connection


_OPTIONS: dict[str, Any] = {
    "client_encoding": "utf8",
    "connect_timeout": _CONNECT_SECONDS,
    "fallback_application_name": APPLICATION,
    # A server that is gone without a word is noticed in a minute, by work that has no deadline.
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""Of a connection, if the address says nothing else."""


class _AbsentError(Exception):
    """The schema has no index of this library."""


@contextmanager
def _translated(location: str) -> Generator[None]:
    """Turn errors of the driver into errors of this library.

    Raises:
        ServiceError: The server failed; it can be retried if that may help.
        StoreError: The index cannot be used in this way.
        ConfigurationError: The address cannot be used.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _mapped(error, location) from error


def _mapped(error: psycopg.Error, location: str) -> RetrievalError:  # noqa: PLR0911 - a case for each
    said = f"{location}: {_said(error)}"
    match error:
        case errors.LockNotAvailable():
            return IndexBusyError(f"{location}: another process is writing; try again, or increase busy_timeout")
        case errors.QueryCanceled():
            return ServiceTimeoutError(f"{said}. The server may be overloaded.", SERVICE)
        case errors.ReadOnlySqlTransaction():
            return StoreError(f"{said}. This server is a read-only replica: write to the primary server.")
        case errors.InsufficientPrivilege():
            return StoreError(f"{said}. Grant the role USAGE on the schema and its tables; to write, also CREATE.")
        case errors.DiskFull():
            return StoreError(f"{said}. Nothing was written: make space at the server, and try again.")
        case psycopg.ProgrammingError(sqlstate=None):
            return ConfigurationError(f"store.postgres.url is no address of a database, such as {EXAMPLE}")
        case psycopg.OperationalError(sqlstate=None) if "FATAL:" in str(error) and not any(
            word in str(error) for word in _NOT_NOW
        ):
            advice = "Check user, password and database of store.postgres.url, and the server's pg_hba.conf."
            return ServiceError(f"{said}. {advice}", SERVICE)
        case psycopg.OperationalError(sqlstate=code) if code is None or code[:2] in _LOST:
            return ServiceConnectionError(f"{said}. {_ROOM if _FULL.search(said) else _REACH}", SERVICE)
        case psycopg.Error(sqlstate=str(code)) if code[:2] in _RETRIED:
            return ServiceError(f"{said}. Try again.", SERVICE, status=503)
        case _:
            return StoreError(said)


def _said(error: psycopg.Error) -> str:
    """Return what the server said, as one line without secrets."""
    lines = (error.diag.message_primary or str(error)).strip().splitlines()
    return without_credentials(" ".join(line.strip() for line in lines) or type(error).__name__)[:500].rstrip(".")
