"""The store itself: checks what it is given, and hands the work to threads."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from retrieval_core.analysis import Analyzer
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, StoreError
from retrieval_core.filters import OPERATORS
from retrieval_core.ports import Candidate, StoreInfo
from retrieval_core.stores.checks import Identity, check_change, check_search
from retrieval_core.stores.fields import first_fields
from retrieval_core.stores.lancedb import read, write
from retrieval_core.stores.lancedb.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.filters import Filter
    from retrieval_core.ports import Change, Fetched, FetchRequest, FieldInfo, SearchRequest, SourceState
    from retrieval_core.stores.lancedb.search import Found
    from retrieval_core.stores.lancedb.snapshot import Allowed, SnapshotCache
    from retrieval_core.stores.lancedb.view import View

BUSY_TIMEOUT = 30.0
"""Seconds that a writer waits for another one."""
TABLE = "text_pages"
_TABLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class LanceDBStore:
    """Keeps an index in a folder on this machine, with LanceDB.

    A write is one commit of one table: who reads sees all of it or nothing, and so does who comes after a crash. One
    process writes at a time, others wait; any number may read meanwhile. From 20,000 vectors on an index of vectors
    answers, which may miss one of the best now and then; below that, search by vector is exact. Needs the extra
    ``lancedb``. One instance serves several event loops and threads. In a process
    that is forked after its first use it refuses to work, since LanceDB cannot.

    Args:
        path: The folder; the first write makes it.
        embedder_id: Names the embedder of the vectors. Without it an index with vectors can be searched by words and
            read, but neither searched by vector nor added to; a new index is then one without vectors.
        dimension: Components of each vector, given exactly when the embedder is.
        analyzer: How text becomes terms.
        table: Name of the table in the folder; several indexes may share one.
        vectors: Names of the further vectors that chunks may have, at most eight.
        busy_timeout: Seconds that a write waits for another process that writes.

    Raises:
        InvalidParameterError: Only one of embedder and dimension was given, the time is negative, or a name is none.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        embedder_id: str | None = None,
        dimension: int | None = None,
        analyzer: Analyzer | None = None,
        table: str = TABLE,
        vectors: Sequence[str] = (),
        busy_timeout: float = BUSY_TIMEOUT,
    ) -> None:
        if busy_timeout < 0:
            msg = f"busy_timeout must not be negative, got {busy_timeout}"
            raise InvalidParameterError(msg)
        if not _TABLE_NAME.fullmatch(table):
            msg = f"{table!r:.120} cannot name a table: letters, digits, _ and -, at most 100, no sign first"
            raise InvalidParameterError(msg)
        self._path = Path(path)
        self._table = table
        self._busy_timeout = busy_timeout
        self._analyzer = analyzer or Analyzer()
        self._identity = Identity(str(path), self._analyzer.id, embedder_id, dimension, tuple(vectors))
        self._lock = Lock()
        self._session: _State | None = None
        self._closed = False

    async def describe(self) -> StoreInfo:
        """Say what the index holds and can do; cheap unless something was written since the last time.

        Raises:
            IndexNotFoundError: Nothing was written yet.
            StoreError: The index cannot be opened.
        """
        state = self._current()
        return await state.session.read(partial(self._describe, state))

    async def upsert(self, change: Change) -> None:
        """Apply a change in one commit.

        Raises:
            InvalidParameterError: The change cannot be kept; the message says why.
            DimensionMismatchError: The vectors have another dimension than the index.
            EmbedderMismatchError: The index was built with another embedder.
            IndexBusyError: Another process wrote for longer than the time that this store waits.
            StoreError: The index cannot be written.
            MissingExtraError: ``lancedb`` is not installed.
        """
        check_change(change)
        await self._current().session.write(partial(self._apply, change))

    async def delete(self, document_ids: Sequence[str]) -> int:
        """Remove documents with everything that belongs to them, and return how many chunks went.

        Raises:
            IndexBusyError: Another process wrote for longer than the time that this store waits.
            StoreError: The index cannot be written.
        """
        session = self._current().session
        try:
            await session.read(self._check)
        except IndexNotFoundError:
            return 0
        return await session.write(partial(self._delete, document_ids))

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
        state = self._current()
        return await state.session.read(partial(self._search, state, request))

    async def search_both(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the best candidates of both sides, put together by LanceDB's reciprocal rank fusion.

        Each side gives as many candidates as the limit; the score is the sum of ``1 / (60 + rank)``.

        Args:
            request: Has both ``vector`` and ``text``.

        Raises:
            InvalidParameterError: One of them is missing, or the request is not well formed otherwise.
            StoreError: As :meth:`search`.
        """
        if request.vector is None or request.text is None:
            msg = "a search of both sides takes a vector and a text"
            raise InvalidParameterError(msg)
        check_search(replace(request, text=None))
        state = self._current()
        return await state.session.read(partial(self._search, state, request))

    async def fetch(self, request: FetchRequest) -> Fetched:
        """Return what is there of what was asked for.

        Raises:
            IndexNotFoundError: Nothing was written yet.
            StoreError: The index cannot be read.
        """

        def work(view: View) -> Fetched:
            self._check(view)
            return read.fetch(view, request)

        return await self._current().session.read(work)

    async def version(self) -> str | None:
        """Name the state of the index: every write changes it, bringing its indexes up to date may too.

        Returns:
            ``None`` before the first write.

        Raises:
            StoreError: The index cannot be read.
        """
        try:
            return await self._current().session.read(lambda view: f"{view.identity}:{view.version}")
        except IndexNotFoundError:
            return None

    async def fields(self, limit: int) -> Mapping[str, FieldInfo]:
        """Return the fields of all passages by their paths, those of most passages first.

        All passages are read, once for each version; before the first write there are none.

        Raises:
            InvalidParameterError: The limit is less than 1.
            StoreError: The index cannot be read.
        """
        state = self._current()
        catalogue: Mapping[str, FieldInfo] = {}
        with suppress(IndexNotFoundError):
            catalogue = await state.session.read(state.fields)
        return first_fields(catalogue, limit)

    async def sources(self) -> Mapping[str, SourceState]:
        """Return the state of every source, by its name; nothing before the first write."""
        try:
            return await self._current().session.read(read.sources)
        except IndexNotFoundError:
            return {}

    async def documents_of(self, source: str) -> Mapping[str, str]:
        """Return the content hashes of a source's documents, by document id; nothing before the first write."""
        try:
            return await self._current().session.read(partial(read.documents_of, source=source))
        except IndexNotFoundError:
            return {}

    async def optimize(self) -> None:
        """Bring the indexes on the disk up to date, and wait for it; otherwise that happens now and then by itself.

        Raises:
            IndexBusyError: Another process wrote for longer than the time that this store waits.
            StoreError: The index cannot be written.
        """
        await self._current().session.sweep()

    async def aclose(self) -> None:
        """Bring the indexes up to date where much was written, and end the threads; further calls are errors."""
        with self._lock:
            self._closed = True
            state, self._session = self._session, None
        if state is not None and state.session.process_id == os.getpid():
            await asyncio.to_thread(state.session.close)

    def _current(self) -> _State:
        with self._lock:
            if self._closed:
                msg = f"{self._path}: the store is closed"
                raise StoreError(msg)
            if self._session is not None and self._session.session.process_id != os.getpid():
                msg = (
                    f"{self._path} was opened before this process was forked, and LanceDB's threads did not come. "
                    "Open it in a process of its own, such as multiprocessing's method 'spawn' starts."
                )
                raise StoreError(msg)
            if self._session is None:
                manifest = self._identity.manifest()
                self._session = _State(Session(self._path, self._table, self._busy_timeout, manifest))
            return self._session

    def _check(self, view: View) -> None:
        self._identity.check_manifest(view.manifest)

    def _apply(self, change: Change, view: View, table: Any) -> tuple[None, int]:
        self._check(view)
        self._identity.check_vectors(change, view.manifest)
        return None, write.apply_change(view, table, change, self._analyzer)

    def _delete(self, document_ids: Sequence[str], view: View, table: Any) -> tuple[int, int]:
        self._check(view)
        return write.remove_documents(view, table, document_ids), 0

    def _describe(self, state: _State, view: View) -> StoreInfo:
        self._check(view)
        documents, chunks = state.counts(view)
        return StoreInfo(
            location=self._identity.location,
            manifest=view.manifest,
            generation=view.version,
            documents=documents,
            chunks=chunks,
            sides=self._identity.sides(view.manifest),
            filter_operators=OPERATORS,
        )

    def _search(self, state: _State, request: SearchRequest, view: View) -> tuple[Candidate, ...]:
        from retrieval_core.stores.lancedb import search  # noqa: PLC0415 - numpy is slow to import

        self._check(view)
        if request.vector is not None:
            self._identity.check_query_vector(request.vector, view.manifest, request.vector_name)
        allowed = None if request.filter is None else state.allowed(view, request.filter)
        dense: list[Found] | None = None
        found: list[Found] = []
        if request.vector is not None:
            found = dense = search.search_vectors(view, request.vector, request.vector_name, request.limit, allowed)
        if request.text is not None:
            found = search.search_words(view, self._analyzer, request.text, request.limit, allowed)
            if dense is not None:
                found = search.fuse(dense, found, request.limit)
        vectors = read.vectors_of(view, (item.chunk_id for item in found)) if request.with_vectors else {}
        return tuple(Candidate(item.chunk_id, item.score, vector=vectors.get(item.chunk_id)) for item in found)


class _State:
    """What one process remembers of the index, by its version."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = Lock()
        self._cache: SnapshotCache | None = None
        self._counted: tuple[tuple[str, int], tuple[int, int]] | None = None
        self._fields: tuple[tuple[str, int], Mapping[str, FieldInfo]] | None = None

    def allowed(self, view: View, condition: Filter) -> Allowed:
        """Return which passages a filter lets pass."""
        from retrieval_core.stores.lancedb.snapshot import SnapshotCache  # noqa: PLC0415 - numpy is slow to import

        with self._lock:
            cache = self._cache = self._cache or SnapshotCache()
        return cache.get(view, condition)

    def counts(self, view: View) -> tuple[int, int]:
        """Return the numbers of documents and chunks, counted once for each version."""
        key, counted = (view.identity, view.version), self._counted
        if counted is None or counted[0] != key:
            counted = self._counted = key, read.count(view)
        return counted[1]

    def fields(self, view: View) -> Mapping[str, FieldInfo]:
        """Return the fields of all chunks, counted once for each version."""
        key, known = (view.identity, view.version), self._fields
        if known is None or known[0] != key:
            known = self._fields = key, read.fields(view)
        return known[1]
