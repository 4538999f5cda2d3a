"""The store itself: checks what it is given, and hands the work to threads."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from retrieval_core.analysis import Analyzer
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, StoreError
from retrieval_core.filters import OPERATORS
from retrieval_core.ports import Candidate, StoreInfo
from retrieval_core.stores.checks import Identity, check_change, check_search
from retrieval_core.stores.compounds import word_query
from retrieval_core.stores.fields import first_fields
from retrieval_core.stores.sqlite import read, schema, write
from retrieval_core.stores.sqlite.connections import Connections
from retrieval_core.stores.sqlite.lexical import count_passages, search_words
from retrieval_core.stores.sqlite.rows import storable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from sqlite3 import Connection

    from retrieval_core.filters import Filter
    from retrieval_core.ports import Change, Fetched, FetchRequest, FieldInfo, Manifest, SearchRequest, SourceState
    from retrieval_core.stores.sqlite.lexical import Found
    from retrieval_core.stores.sqlite.snapshot import Snapshot, SnapshotCache

T = TypeVar("T")

BUSY_TIMEOUT = 30.0
"""Seconds that a writer waits for another one."""


class SqliteStore:
    """Keeps an index in one SQLite file, which several processes may read while one of them writes.

    A write is on the disk when it returns: it survives the end of the process and, where the disk keeps its promises,
    of the power. The first write makes the file and its folder. One instance serves several event loops and threads; in
    a process that was forked it opens the file anew.

    Args:
        path: The file. Next to it lie ``-wal`` and ``-shm`` while it is in use.
        embedder_id: Names the embedder of the vectors. Without it an index with vectors can be searched by words and
            read, but neither searched by vector nor added to; a new index is then one without vectors.
        dimension: Components of each vector, given exactly when the embedder is.
        analyzer: How text becomes terms.
        vectors: Names of the further vectors that chunks may have, at most eight. Each takes as much room as that of
            the passages, on the disk and, once it was searched, in memory.
        busy_timeout: Seconds that a write waits for another process that writes.

    Raises:
        InvalidParameterError: Only one of embedder and dimension was given, a name is none, or the time is negative.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        embedder_id: str | None = None,
        dimension: int | None = None,
        analyzer: Analyzer | None = None,
        vectors: Sequence[str] = (),
        busy_timeout: float = BUSY_TIMEOUT,
    ) -> None:
        if busy_timeout < 0:
            msg = f"busy_timeout must not be negative, got {busy_timeout}"
            raise InvalidParameterError(msg)
        self._path = Path(path)
        self._busy_timeout = busy_timeout
        self._analyzer = analyzer or Analyzer()
        self._identity = Identity(str(path), self._analyzer.id, embedder_id, dimension, tuple(vectors))
        self._lock = Lock()
        self._session: _Session | None = None
        self._inherited: list[_Session] = []
        self._closed = False

    async def describe(self) -> StoreInfo:
        """Say what the index holds and can do; cheap unless something was written since the last time.

        Raises:
            IndexNotFoundError: Nothing was written yet.
            StoreError: The index cannot be opened.
        """
        session = self._current()
        return await session.connections.read(partial(self._describe, session))

    async def upsert(self, change: Change) -> None:
        """Apply a change in one transaction.

        Raises:
            InvalidParameterError: The change cannot be kept; the message says why.
            DimensionMismatchError: The vectors have another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder.
            IndexBusyError: Another process wrote for longer than the time that this store waits.
            StoreError: The index cannot be written.
        """
        check_change(change)
        await self._write(partial(self._apply, change))

    async def delete(self, document_ids: Sequence[str]) -> int:
        """Remove documents with everything that belongs to them, and return how many chunks went.

        Raises:
            IndexBusyError: Another process wrote for longer than the time that this store waits.
            StoreError: The index cannot be written.
        """
        if not await self._exists():
            return 0
        return await self._write(partial(self._delete, storable(document_ids)))

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates, best first; equal scores are ordered by chunk id.

        Raises:
            InvalidParameterError: The request is not well formed.
            DimensionMismatchError: The vector has another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder than the store was opened with.
            IndexNotFoundError: Nothing was written yet.
            StoreError: The index cannot be read.
        """
        check_search(request)
        session = self._current()
        return await session.connections.read(partial(self._search, session, request))

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return what is there of what was asked for.

        Raises:
            IndexNotFoundError: Nothing was written yet.
            StoreError: The index cannot be read.
        """

        def work(connection: Connection) -> Fetched:
            self._checked_manifest(connection)
            return read.fetch(connection, request)

        return await self._current().connections.read(work)

    async def version(self) -> str | None:
        """Name the state of the index: every write changes it, and another file has another.

        Returns:
            ``None`` before the first write.

        Raises:
            StoreError: The index cannot be read.
        """
        try:
            identity, generation = await self._current().connections.read(schema.read_state)
        except IndexNotFoundError:
            return None
        return f"{identity}:{generation}"

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        """Return the fields of all passages by their paths, those of most passages first.

        All passages are read, once for each generation; before the first write there are none.

        Raises:
            InvalidParameterError: The limit is less than 1.
            StoreError: The index cannot be read.
        """
        session = self._current()
        catalogue: Mapping[str, FieldInfo] = {}
        with suppress(IndexNotFoundError):
            catalogue = await session.connections.read(session.fields)
        return first_fields(catalogue, limit)

    async def sources(self) -> Mapping[str, SourceState]:
        """Return the state of every source, by its name; nothing before the first write."""
        try:
            return await self._current().connections.read(read.sources)
        except IndexNotFoundError:
            return {}

    async def documents_of(self, source: str) -> Mapping[str, str]:
        """Return the content hashes of a source's documents, by document id; nothing before the first write."""
        try:
            return await self._current().connections.read(partial(read.documents_of, source=source))
        except IndexNotFoundError:
            return {}

    @property
    def is_loaded(self) -> bool:
        """Whether arrays that searches use are in memory; asking loads nothing."""
        return self.loaded_bytes > 0

    @property
    def loaded_bytes(self) -> int:
        """Bytes of these arrays: vectors, and values of the fields that filters named."""
        session = self._session
        return 0 if session is None else session.loaded_bytes

    async def aclose(self) -> None:
        """Close the file and end the threads; further calls are errors. Closing twice is fine."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
        if session is not None and session.process_id == os.getpid():
            await asyncio.to_thread(session.connections.close)

    def _current(self) -> _Session:
        with self._lock:
            if self._closed:
                msg = f"{self._path}: the store is closed"
                raise StoreError(msg)
            if self._session is not None and self._session.process_id != os.getpid():
                # The parent process goes on using these connections; closing them here would harm it.
                self._inherited.append(self._session)
                self._session = None
            if self._session is None:
                self._session = _Session(self._path, self._busy_timeout)
            return self._session

    async def _exists(self) -> bool:
        try:
            await self._current().connections.read(self._checked_manifest)
        except IndexNotFoundError:
            return False
        return True

    async def _write(self, function: Callable[[Connection], T]) -> T:
        def create(connection: Connection) -> None:
            schema.create_tables(connection, self._identity.manifest())

        return await self._current().connections.write(function, create)

    def _apply(self, change: Change, connection: Connection) -> None:
        manifest = self._checked_manifest(connection)
        self._identity.check_vectors(change, manifest)
        write.apply_change(connection, change, self._analyzer, manifest.vectors)

    def _delete(self, document_ids: Sequence[str], connection: Connection) -> int:
        vectors = self._checked_manifest(connection).vectors
        write.forget_sources_of(connection, document_ids)
        return write.remove_documents(connection, document_ids, write.next_generation(connection), vectors)

    def _describe(self, session: _Session, connection: Connection) -> StoreInfo:
        manifest = self._checked_manifest(connection)
        state = schema.read_state(connection)
        documents, chunks = session.counts(connection, state)
        return StoreInfo(
            location=self._identity.location,
            manifest=manifest,
            generation=state[1],
            documents=documents,
            chunks=chunks,
            sides=self._identity.sides(manifest),
            filter_operators=OPERATORS,
        )

    def _search(self, session: _Session, request: SearchRequest, connection: Connection) -> tuple[Candidate, ...]:
        manifest = self._checked_manifest(connection)
        if request.vector is not None:
            from retrieval_core.stores.sqlite.dense import search_vectors  # noqa: PLC0415 - numpy is slow to import

            self._identity.check_query_vector(request.vector, manifest, request.vector_name)
            snapshot = session.snapshot(connection, request.filter, manifest.dimension, request.vector_name)
            found = search_vectors(connection, snapshot, request.vector, request.limit)
        else:
            query = word_query(self._analyzer, request.text or "", partial(count_passages, connection))
            allowed = None
            if request.filter is not None and query.terms:
                snapshot = session.snapshot(connection, request.filter, None)
                allowed = frozenset(snapshot.numbers[snapshot.passing].tolist()).__contains__
            found = search_words(connection, query, request.limit, allowed)
        return _candidates(connection, found, with_vectors=request.with_vectors)

    def _checked_manifest(self, connection: Connection) -> Manifest:
        manifest = schema.read_manifest(connection)
        self._identity.check_manifest(manifest)
        return manifest


class _Session:
    """What belongs to one process: its threads, its connections and its arrays."""

    def __init__(self, path: Path, busy_timeout: float) -> None:
        self.process_id = os.getpid()
        self.connections = Connections(path, busy_timeout)
        self._lock = Lock()
        self._cache: SnapshotCache | None = None
        self._counted: tuple[tuple[str, int], tuple[int, int]] | None = None
        self._fields: tuple[tuple[str, int], Mapping[str, FieldInfo]] | None = None

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the arrays, without waiting for those that are being read."""
        cache = self._cache
        return 0 if cache is None else cache.loaded_bytes

    def snapshot(
        self, connection: Connection, condition: Filter | None, dimension: int | None, name: str | None = None
    ) -> Snapshot:
        """Return the arrays that a search needs, as of the open transaction."""
        from retrieval_core.stores.sqlite.snapshot import SnapshotCache  # noqa: PLC0415 - numpy is slow to import

        with self._lock:
            cache = self._cache = self._cache or SnapshotCache()
        return cache.get(connection, condition, dimension, name)

    def counts(self, connection: Connection, state: tuple[str, int]) -> tuple[int, int]:
        """Return the numbers of documents and chunks, counted once for each generation."""
        counted = self._counted
        if counted is None or counted[0] != state:
            counted = self._counted = state, read.count(connection)
        return counted[1]

    def fields(self, connection: Connection) -> Mapping[str, FieldInfo]:
        """Return the fields of all chunks, counted once for each generation."""
        state = schema.read_state(connection)
        known = self._fields
        if known is None or known[0] != state:
            known = self._fields = state, read.fields(connection)
        return known[1]


def _candidates(connection: Connection, found: Sequence[Found], *, with_vectors: bool) -> tuple[Candidate, ...]:
    vectors = read.vectors_of(connection, (item.number for item in found)) if with_vectors else {}
    return tuple(Candidate(item.chunk_id, item.score, vector=vectors.get(item.number)) for item in found)
