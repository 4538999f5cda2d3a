"""The SQLite store."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Literal, TypeVar

from retrieval_core.adapters.stores.local import BUSY_TIMEOUT, Last, LocalStore
from retrieval_core.adapters.stores.query_terms import query_terms
from retrieval_core.adapters.stores.settings_memory import KEY
from retrieval_core.adapters.stores.sqlite import read, schema, trigrams
from retrieval_core.adapters.stores.sqlite.connections import Connections, OldFormatError, is_write_refused
from retrieval_core.config.base import AdapterSettings
from retrieval_core.errors import DamagedSearchError, NotYetEmbeddedError, StoreError
from retrieval_core.ports import Candidate, TermCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path
    from sqlite3 import Connection
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.adapters.stores.base import Identity
    from retrieval_core.adapters.stores.held import IndexInMemory
    from retrieval_core.adapters.stores.local import Match
    from retrieval_core.adapters.stores.sqlite.arrays import SnapshotCache
    from retrieval_core.adapters.stores.sqlite.read import Snapshot
    from retrieval_core.adapters.stores.sqlite.schema import Preparation
    from retrieval_core.adapters.stores.sqlite.words import InvertedIndex
    from retrieval_core.ports import Change, SearchRequest, StoredDamage, StoreInfo
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types.filters import Filter

T = TypeVar("T")


class SqliteSettings(AdapterSettings):
    """An index in one SQLite file."""

    quantization: Literal["none", "int8"] = "none"
    """Form of the vectors in memory. ``int8`` needs a quarter of the memory; the best hits are compared exactly."""


class SqliteStore(LocalStore["Connection", "_Session"]):
    """Keeps an index in one SQLite file, which several processes may read while one of them writes.

    Writes are durable when they return (``synchronous = FULL``). The first write makes the file and its folder. One
    instance serves several event loops and threads; in a forked process it opens the file anew.

    Args:
        path: The file. Next to it are ``-wal`` and ``-shm`` while it is in use.
        embedder_id: Name of the embedder. Without it a new index has no vectors, and an index with vectors has only
            keyword search and can't be added to.
        dimension: Components of each vector, given exactly when the embedder is.
        busy_timeout: Seconds that a write waits for another process that writes.
        quantized: Whether vectors in memory, not those in the file, are integers of eight bits, in a quarter of the
            memory. They select four times as many candidates as needed, which are then compared exactly.

    Raises:
        InvalidParameterError: Only one of embedder and dimension was given, a name is invalid, or the time is negative.
    """

    Settings = SqliteSettings

    def __init__(
        self,
        path: str | Path,
        *,
        embedder_id: str | None = None,
        dimension: int | None = None,
        analyzer: Analyzer | None = None,
        busy_timeout: float = BUSY_TIMEOUT,
        quantized: bool = False,
    ) -> None:
        super().__init__(
            read,
            path,
            embedder_id=embedder_id,
            dimension=dimension,
            analyzer=analyzer,
            busy_timeout=busy_timeout,
        )
        self._waiting = Last[int]()
        self._without_text = Last[frozenset[str]]()
        self._quantized = quantized
        # It refers to nothing that refers to it: a store that nobody closed goes as soon as its last call has ended.
        self._prepare = partial(_prepared, self._identity, self._analyzer, self._path)
        self._inherited: list[_Session] = []

    @classmethod
    def from_settings(cls, settings: SqliteSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, loading nothing."""
        is_quantized = settings.quantization == "int8"
        return cls(parts.location, quantized=is_quantized, **parts.of_store)

    @property
    def is_loaded(self) -> bool:
        """Whether searches have loaded arrays into memory."""
        return self.loaded_bytes > 0

    @property
    def loaded_bytes(self) -> int:
        """Bytes of these arrays: vectors, and values of the fields that filters named."""
        session = self._session
        return 0 if session is None else session.loaded_bytes

    async def _unembedded(self) -> Mapping[str, str]:
        return await self._read(read.unembedded)

    async def _add_vectors(self, change: Change) -> int:
        def work(connection: Connection) -> int:
            from retrieval_core.adapters.stores.sqlite import write  # noqa: PLC0415 - numpy is slow to import

            self._identity.check_change(change, self._checked_manifest(connection))
            return write.add_vectors(connection, change)

        return await self._current().write(work, self._prepare) if await self._exists() else 0

    def _describe_view(self, view: Connection) -> StoreInfo:
        info = super()._describe_view(view)
        return replace(info, unembedded=self._count_unembedded(view))

    def _count_unembedded(self, view: Connection) -> int:
        return self._waiting.get(read.read_state(view), lambda: read.count_unembedded(view))

    async def _find_damage(self, document_ids: Collection[str] | None) -> StoredDamage:
        """Compare what is stored with its checksums.

        Chunks of older versions of this library have none. Their postings are compared with the text, and their vectors
        must exist and have the length 1.
        """

        def work(connection: Connection) -> StoredDamage:
            from retrieval_core.adapters.stores.sqlite import damage  # noqa: PLC0415 - numpy is slow to import

            has_vectors = self._checked_manifest(connection).dimension is not None
            names = None if document_ids is None else read.storable(document_ids)
            return damage.find_damage(connection, self._analyzer, has_vectors=has_vectors, document_ids=names)

        return await self._current().read(work)

    async def _remember(self, settings: str) -> None:
        def work(connection: Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO manifest VALUES (?, ?)", (KEY, settings))

        await self._write(work)

    async def _repair(self) -> None:
        """Build damaged postings again, remove strays, and have damaged vectors wait for being embedded."""

        def work(connection: Connection) -> None:
            from retrieval_core.adapters.stores.sqlite import write  # noqa: PLC0415 - numpy is slow to import

            has_vectors = self._checked_manifest(connection).dimension is not None
            write.repair(connection, self._analyzer, has_vectors=has_vectors)

        await self._write(work)

    async def _optimize(self) -> None:
        def work(connection: Connection) -> None:
            from retrieval_core.adapters.stores.sqlite import write  # noqa: PLC0415 - numpy is slow to import

            self._checked_manifest(connection)
            write.optimize(connection)

        await self._write(work)

    async def _write(self, function: Callable[[Connection], None]) -> None:
        """Write to an index that exists."""
        if await self._exists():
            await self._current().write(function, self._prepare)

    async def _count_terms(self, terms: Sequence[str], condition: Filter | None) -> TermCounts:
        """Count in the postings."""
        session = self._current()

        def work(view: Connection) -> TermCounts:
            allowed = None if condition is None else session.snapshot(view, condition, None)
            return session.words(view).count_terms(view, terms, allowed)

        return await self._read(work)

    async def _documents_with(self, texts: Sequence[Collection[str]], condition: Filter | None) -> Sequence[str]:
        """Find documents by their trigrams; all of them if an older version of this library wrote the index last."""
        session = self._current()

        def work(view: Connection) -> Sequence[str]:
            state = read.read_state(view)
            found = trigrams.find_documents(view, texts)
            found |= self._without_text.get(state, lambda: trigrams.documents_without_text(view))
            if condition is not None:
                rows = session.snapshot(view, condition, None)
                found &= trigrams.documents_of_chunks(view, rows.numbers[rows.passing].tolist())
            return list(found)

        return await self._read(work)

    async def _version(self) -> str | None:
        """Name the state of the index; while nothing is written, this takes microseconds and no thread."""
        return await self._current().version(self._named)

    def _held(self) -> IndexInMemory | None:
        if self._quantized:
            return None
        session = self._current()
        return session.hold(partial(self._read_index, session))

    async def _hold(self) -> None:
        if not self._quantized:
            session = self._current()
            await session.load(partial(self._read_index, session))

    def _read_index(self, session: _Session, view: Connection) -> IndexInMemory | None:
        from retrieval_core.adapters.stores.sqlite.arrays import read_index  # noqa: PLC0415 - numpy is slow to import

        manifest = self._checked_manifest(view)
        index = read_index(
            view,
            session.snapshot,
            identity=self._identity,
            manifest=manifest,
            analyzer=self._analyzer,
            version=self._named(view),
            paths=session.filter_paths,
        )
        if index is not None:
            session.drop_words()
        return index

    def _open(self) -> _Session:
        return _Session(self._path, self._busy_timeout, self._prepare, quantized=self._quantized)

    def _leave(self, session: _Session) -> None:
        self._inherited.append(session)  # the parent process goes on using its connections; closing them would harm it

    async def _upsert(self, change: Change) -> None:
        def work(connection: Connection) -> None:
            from retrieval_core.adapters.stores.sqlite import write  # noqa: PLC0415 - numpy is slow to import

            self._identity.check_change(change, self._checked_manifest(connection))
            write.apply_change(connection, change, self._analyzer)

        await self._current().write(work, self._prepare)

    async def _remove(self, document_ids: Sequence[str]) -> int:
        names = read.storable(document_ids)

        def work(connection: Connection) -> int:
            from retrieval_core.adapters.stores.sqlite import write  # noqa: PLC0415 - numpy is slow to import

            self._checked_manifest(connection)
            return write.remove(connection, names)

        return await self._current().write(work, self._prepare)

    def _search_view(self, session: _Session, request: SearchRequest, view: Connection) -> tuple[Candidate, ...]:
        session.searches += 1
        manifest = self._checked_manifest(view)
        if request.vector is not None:
            from retrieval_core.adapters.stores.sqlite.arrays import search_vectors  # noqa: PLC0415 - numpy is slow to import

            self._identity.check_query_vector(request.vector, manifest)
            snapshot = session.snapshot(view, request.filter, manifest.dimension)
            found = search_vectors(view, snapshot, request.vector, request.limit)
            if snapshot.embedded < snapshot.chunks:
                candidates = _candidates(view, found, with_vectors=request.with_vectors)
                if self._count_unembedded(view):
                    raise NotYetEmbeddedError(snapshot.chunks, snapshot.embedded, candidates)
                missing = snapshot.chunks - snapshot.embedded
                raise DamagedSearchError("vector", snapshot.chunks, missing, candidates)
        else:
            words = session.words(view)
            terms = query_terms(self._analyzer, request.text or "", partial(words.count_chunks, view))
            allowed = None
            if request.filter is not None and terms:
                allowed = session.snapshot(view, request.filter, None)
            found = words.search(view, terms, request.limit, allowed)
            if words.missing > 0:
                candidates = _candidates(view, found, with_vectors=request.with_vectors)
                raise DamagedSearchError("keyword", words.chunks + words.missing, words.missing, candidates)
        return _candidates(view, found, with_vectors=request.with_vectors)


def _prepared(identity: Identity, analyzer: Analyzer, path: Path, connection: Connection) -> None:
    """Make the tables of a new index, and convert what an older version of this library wrote."""
    version = schema.read_format(connection, path)
    if not version:
        schema.create_tables(connection, identity.manifest())
        return
    manifest = read.read_manifest(connection)
    identity.check_manifest(manifest)
    if version != schema.FORMAT:
        schema.convert_tables(connection)
    schema.add_lines(connection)
    schema.drop_named_vectors(connection)
    if version != schema.FORMAT or manifest.analyzer != analyzer.id:
        from retrieval_core.adapters.stores.sqlite import write  # noqa: PLC0415 - numpy is slow to import

        write.analyze_again(connection, analyzer)


class _Session(Connections):
    """One process's threads, connections and arrays."""

    def __init__(self, path: Path, busy_timeout: float, prepare: Preparation, *, quantized: bool) -> None:
        super().__init__(path, busy_timeout)
        self._prepare = prepare
        self._quantized = quantized
        self._lock = Lock()
        self._cache: SnapshotCache | None = None
        self._words = Last["InvertedIndex"]()

    @property
    def loaded_bytes(self) -> int:
        """Bytes of the arrays."""
        held = None if self._held is None else self._held[1]
        return sum(loaded.loaded_bytes for loaded in (self._cache, self._words.value, held) if loaded is not None)

    async def read(self, function: Callable[[Connection], T]) -> T:
        """As its base does; an index of an older format is converted first."""
        try:
            return await super().read(function)
        except OldFormatError as error:
            await self._convert(error)
            return await super().read(function)

    async def _convert(self, reason: OldFormatError) -> None:
        """Bring the tables to the present format.

        Raises:
            StoreError: The index cannot be written.
        """
        try:
            await self.write(lambda _: None, self._prepare)
        except StoreError as error:
            if not is_write_refused(error):
                raise
            msg = (
                f"{reason}, which this version of retrieval-core has to convert, and it may not write there "
                f"({error.__cause__}). Open it once with permission to write in its folder, or copy it elsewhere"
            )
            raise StoreError(msg) from error

    def snapshot(self, connection: Connection, condition: Filter | None, dimension: int | None) -> Snapshot:
        """Return the arrays for a search, as of the open transaction."""
        from retrieval_core.adapters.stores.sqlite.arrays import SnapshotCache  # noqa: PLC0415 - numpy is slow to import

        with self._lock:
            cache = self._cache = self._cache or SnapshotCache(quantized=self._quantized)
        return cache.get(connection, condition, dimension)

    @property
    def filter_paths(self) -> tuple[str, ...]:
        """The names of the fields that filters named so far."""
        return () if self._cache is None else self._cache.filter_paths

    def drop_words(self) -> None:
        """Drop the postings that searches have read."""
        self._words = Last["InvertedIndex"]()

    def words(self, connection: Connection) -> InvertedIndex:
        """Return the words for a search, as of the open transaction."""
        from retrieval_core.adapters.stores.sqlite.words import InvertedIndex  # noqa: PLC0415 - numpy is slow to import

        return self._words.get(read.read_state(connection), lambda: InvertedIndex(connection))


def _candidates(connection: Connection, found: Sequence[Match], *, with_vectors: bool) -> tuple[Candidate, ...]:
    vectors = read.vectors_of(connection, (item.number for item in found)) if with_vectors else {}
    return tuple([Candidate(item.chunk_id, item.score, vector=vectors.get(item.number)) for item in found])
