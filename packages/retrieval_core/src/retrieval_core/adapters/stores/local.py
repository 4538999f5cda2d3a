"""The base of the stores on this machine's disk."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from retrieval_core.adapters.stores.checks import Identity, check_change, check_search
from retrieval_core.adapters.stores.fields import first_fields
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, StoreError
from retrieval_core.ports import StoreInfo
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types.filters import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from retrieval_core.ports import (
        Candidate,
        Change,
        Fetched,
        FetchRequest,
        FieldInfo,
        Manifest,
        SearchRequest,
        SourceState,
    )
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


class LocalStore(ABC, Generic[V, S]):
    """A store of one index on the disk, which every process opens for itself; subclasses write and search.

    The arguments are those of the subclasses. What the methods raise stands with their protocols, in
    :mod:`retrieval_core.ports`; besides, all but closing raise :class:`MissingExtraError` where an extra is missing.

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
        adds_vectors: bool = False,
    ) -> None:
        if busy_timeout < 0:
            msg = f"busy_timeout must not be negative, got {busy_timeout}"
            raise InvalidParameterError(msg)
        self._reader = reader
        self._path = Path(path)
        self._busy_timeout = busy_timeout
        self._analyzer = analyzer or Analyzer()
        self._identity = Identity(str(path), self._analyzer.id, embedder_id, dimension, adds_vectors=adds_vectors)
        self._lock = Lock()
        self._session: S | None = None
        self._process_id = os.getpid()
        self._closed = False
        self._counts = Last[tuple[int, int]]()
        self._catalogue = Last["Mapping[str, FieldInfo]"]()

    async def describe(self) -> StoreInfo:
        """Return the index's contents and abilities; cheap unless something was written since the last time."""
        return await self._current().read(self._describe)

    async def upsert(self, change: Change) -> None:
        """Apply a change, all of it or nothing."""
        check_change(change)
        await self._apply(change)

    async def delete(self, document_ids: Sequence[str]) -> int:
        """Remove documents with all that belongs to them, and return how many chunks were removed."""
        return await self._remove(document_ids) if await self._exists() else 0

    async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates, best first; equal scores are ordered by chunk id."""
        check_search(request)
        session = self._current()
        return await session.read(partial(self._search, session, request))

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested records that exist."""

        def work(view: V) -> Fetched:
            self._checked_manifest(view)
            return self._reader.fetch(view, request)

        return await self._current().read(work)

    async def version(self) -> str | None:
        """Name the state of the index, which every write changes; ``None`` before the first one."""
        return await self._read_or(None, self._named)

    async def count_chunks(self, condition: Filter) -> int:
        """Return how many chunks pass a filter; looks at all of them."""
        return await self._read_or(0, lambda view: self._reader.count_chunks(view, condition))

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        """Return the fields of all passages by their paths, those of most first; reads all, once for each version."""

        def work(view: V) -> Mapping[str, FieldInfo]:
            return self._catalogue.get(self._reader.read_state(view), lambda: self._reader.fields(view))

        return first_fields(await self._read_or({}, work), limit)

    async def sources(self) -> Mapping[str, SourceState]:
        """Return the state of every source, by its name; nothing before the first write."""
        return await self._read_or({}, self._reader.sources)

    async def documents_of(self, source: str) -> Mapping[str, str]:
        """Return the content hashes of a source's documents, by document id; nothing before the first write."""
        return await self._read_or({}, lambda view: self._reader.documents_of(view, source))

    async def document_ids(self) -> Sequence[str]:
        """Return the id of each document."""

        def work(view: V) -> Sequence[str]:
            self._checked_manifest(view)
            return self._reader.document_ids(view)

        return await self._current().read(work)

    async def aclose(self) -> None:
        """Wait for what runs, and close the index and the threads; further calls are errors. Closing twice is fine."""
        with self._lock:
            self._closed = True
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
    async def _apply(self, change: Change) -> None:
        """Apply a change that passed :func:`check_change`, making the index where there is none."""

    @abstractmethod
    async def _remove(self, document_ids: Sequence[str]) -> int:
        """Remove documents from an existing index."""

    @abstractmethod
    def _search(self, session: S, request: SearchRequest, view: V) -> tuple[Candidate, ...]:
        """Search a view of the index."""

    def _current(self) -> S:
        with self._lock:
            if self._closed:
                msg = f"{self._path}: the index is closed; open it again with open_index()"
                raise StoreError(msg)
            if self._session is not None and self._process_id != os.getpid():
                self._leave(self._session)
                self._session = None
            if self._session is None:
                self._session, self._process_id = self._open(), os.getpid()
            return self._session

    async def _read_or(self, nothing: T, function: Callable[[V], T]) -> T:
        """Read, or return ``nothing`` before the first write."""
        try:
            return await self._current().read(function)
        except IndexNotFoundError:
            return nothing

    def _named(self, view: V) -> str:
        return "{}:{}".format(*self._reader.read_state(view))

    async def _exists(self) -> bool:
        """Whether there is an index; raises for one that this store may not use."""
        return await self._read_or(None, self._checked_manifest) is not None

    def _checked_manifest(self, view: V) -> Manifest:
        manifest = self._reader.read_manifest(view)
        self._identity.check_manifest(manifest)
        return manifest

    def _describe(self, view: V) -> StoreInfo:
        manifest = self._checked_manifest(view)
        state = self._reader.read_state(view)
        documents, chunks = self._counts.get(state, lambda: self._reader.count(view))
        return StoreInfo(
            location=self._identity.location,
            manifest=manifest,
            generation=state[1],
            documents=documents,
            chunks=chunks,
            sides=self._identity.sides(manifest),
            filter_operators=OPERATORS,
        )


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
