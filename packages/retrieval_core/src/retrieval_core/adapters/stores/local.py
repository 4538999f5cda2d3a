"""The base of the stores on this machine's disk."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from retrieval_core.adapters.stores.base import StoreBase
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from retrieval_core.ports import (
        Candidate,
        Fetched,
        FetchRequest,
        FieldInfo,
        Manifest,
        SearchRequest,
        SourceState,
        StoreInfo,
    )
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types.filters import Filter

T = TypeVar("T")
V = TypeVar("V")
"""The type of a consistent view of the index."""
V_contra = TypeVar("V_contra", contravariant=True)

BUILD_ANEW = "build the index anew: retrieval index PATH…"
"""The advice for a damaged index."""
BUSY_TIMEOUT = 30.0
"""Seconds that a writer waits for another one."""

State: TypeAlias = "tuple[str, int]"
"""A random token of the last write, and a number that grows with each write.

The number alone would not do: a copy of an index counts on from the same one.
"""


class Match(NamedTuple):
    """A chunk that a search found; the number is that of its row."""

    number: int
    chunk_id: str
    score: float


def best(found: Iterable[Match], limit: int) -> list[Match]:
    """Return the matches of the highest scores; equal ones are ordered by chunk id."""
    return sorted(found, key=lambda item: (-item.score, item.chunk_id))[:limit]


def if_it_fails_again(path: Path) -> str:
    """Return the advice for a failure that may be a bug, or damage to the index."""
    return f"If it does so again, the index is damaged; delete {path} and {BUILD_ANEW}"


class StoreSession(Protocol):
    """An index that one process has open."""

    async def read(self, function: Callable[[Any], T]) -> T:
        """Run a function in a thread, on a consistent view of the index."""
        ...

    def close(self) -> None:
        """Wait for what runs, and close everything. Blocks."""
        ...


S = TypeVar("S", bound=StoreSession)


class IndexReader(Protocol[V_contra]):
    """The functions that read an index by id; a module will do."""

    def read_state(self, view: V_contra, /) -> State:
        """Return the state of the index."""
        ...

    def read_manifest(self, view: V_contra, /) -> Manifest:
        """Return the index's manifest."""
        ...

    def fetch(self, view: V_contra, request: FetchRequest, /) -> Fetched:
        """Return those of the requested records that exist."""
        ...

    def document_ids(self, view: V_contra, /) -> Sequence[str]:
        """Return the id of each document."""
        ...

    def count(self, view: V_contra, /) -> tuple[int, int]:
        """Return the numbers of documents and of chunks."""
        ...

    def count_chunks(self, view: V_contra, condition: Filter, /) -> int:
        """Return how many chunks pass a filter."""
        ...

    def fields(self, view: V_contra, /) -> Mapping[str, FieldInfo]:
        """Return the fields of all chunks by their paths, those of most chunks first."""
        ...

    def sources(self, view: V_contra, /) -> Mapping[str, SourceState]:
        """Return the state of every source, by its name."""
        ...

    def documents_of(self, view: V_contra, source: str, /) -> Mapping[str, str]:
        """Return the content hashes of a source's documents, by document id."""
        ...


class LocalStore(StoreBase, Generic[V, S]):
    """A store of one index on the disk, which every process opens for itself; subclasses write and search.

    The arguments are those of the subclasses. All methods but closing raise :class:`MissingExtraError` if an extra is
    missing.

    Raises:
        InvalidParameterError: Only one of embedder and dimension was given, a name is invalid, or the time is negative.
    """

    def __init__(
        self,
        reader: IndexReader[V],
        path: str | Path,
        *,
        embedder_id: str | None,
        dimension: int | None,
        analyzer: Analyzer | None,
        busy_timeout: float,
    ) -> None:
        if busy_timeout < 0:
            msg = f"busy_timeout must not be negative, got {busy_timeout}"
            raise InvalidParameterError(msg)
        super().__init__(str(path), embedder_id=embedder_id, dimension=dimension, analyzer=analyzer)
        self._reader = reader
        self._path = Path(path)
        self._busy_timeout = busy_timeout
        self._lock = Lock()
        self._session: S | None = None
        self._process_id = os.getpid()
        self._counts = Last[tuple[int, int]]()

    async def _describe(self) -> StoreInfo:
        return await self._current().read(self._describe_view)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        return await self._remove(document_ids) if await self._exists() else 0

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        session = self._current()
        return await session.read(partial(self._search_view, session, request))

    async def _fetch(self, request: FetchRequest) -> Fetched:
        return await self._read(lambda view: self._reader.fetch(view, request))

    async def _version(self) -> str | None:
        return await self._current().read(self._named)

    async def _count_chunks(self, condition: Filter) -> int:
        return await self._current().read(lambda view: self._reader.count_chunks(view, condition))

    async def _fields(self) -> Mapping[str, FieldInfo]:
        return await self._current().read(self._reader.fields)

    async def _sources(self) -> Mapping[str, SourceState]:
        return await self._current().read(self._reader.sources)

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        return await self._current().read(lambda view: self._reader.documents_of(view, source))

    async def _document_ids(self) -> Sequence[str]:
        return await self._read(self._reader.document_ids)

    async def _close(self) -> None:
        """Wait for what runs, and close the index and the threads."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None and self._process_id == os.getpid():
            await asyncio.to_thread(session.close)

    @abstractmethod
    def _open(self) -> S:
        """Open the index for this process, without touching the disk."""

    @abstractmethod
    def _leave(self, session: S) -> None:
        """Drop the session of the parent process after a fork, without closing it: the parent still uses it."""

    @abstractmethod
    async def _remove(self, document_ids: Sequence[str]) -> int:
        """Remove documents from an existing index."""

    @abstractmethod
    def _search_view(self, session: S, request: SearchRequest, view: V) -> tuple[Candidate, ...]:
        """Search a view of the index."""

    def _current(self) -> S:
        with self._lock:
            self._check_open()
            if self._session is not None and self._process_id != os.getpid():
                self._leave(self._session)
                self._session = None
            if self._session is None:
                self._session, self._process_id = self._open(), os.getpid()
            return self._session

    async def _read(self, function: Callable[[V], T]) -> T:
        """Run a function in a thread, on a consistent view of an index that this store may use."""

        def work(view: V) -> T:
            self._checked_manifest(view)
            return function(view)

        return await self._current().read(work)

    def _named(self, view: V) -> str:
        return "{}:{}".format(*self._reader.read_state(view))

    async def _exists(self) -> bool:
        """Whether there is an index; raises for one that this store may not use."""
        try:
            await self._current().read(self._checked_manifest)
        except IndexNotFoundError:
            return False
        return True

    def _checked_manifest(self, view: V) -> Manifest:
        manifest = self._reader.read_manifest(view)
        self._identity.check_manifest(manifest)
        return manifest

    def _describe_view(self, view: V) -> StoreInfo:
        manifest = self._checked_manifest(view)
        state = self._reader.read_state(view)
        documents, chunks = self._counts.get(state, lambda: self._reader.count(view))
        return self._info(manifest, documents=documents, chunks=chunks, generation=state[1])


class Last(Generic[T]):
    """A cache of one value, for the last state of an index."""

    def __init__(self) -> None:
        self._known: tuple[State, T] | None = None

    @property
    def value(self) -> T | None:
        """What is kept."""
        return None if self._known is None else self._known[1]

    def get(self, state: State, compute: Callable[[], T]) -> T:
        """Return the value of a state, computed where it is not the last one."""
        known = self._known
        if known is None or known[0] != state:
            known = self._known = state, compute()
        return known[1]
