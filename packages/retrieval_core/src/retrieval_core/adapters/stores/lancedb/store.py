"""The LanceDB store."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from pydantic import Field

from retrieval_core.adapters.stores.lancedb import records
from retrieval_core.adapters.stores.lancedb.schema import VECTOR
from retrieval_core.adapters.stores.lancedb.session import LanceDBSession
from retrieval_core.adapters.stores.local import BUSY_TIMEOUT, LocalStore
from retrieval_core.adapters.stores.settings_memory import lancedb_folder, write_to_folder
from retrieval_core.config.base import AdapterSettings
from retrieval_core.errors import DamagedSearchError, InvalidParameterError, StoreError
from retrieval_core.ports import Candidate

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.adapters.stores.lancedb.records import View
    from retrieval_core.adapters.stores.local import Match
    from retrieval_core.ports import Change, SearchRequest, StoredDamage
    from retrieval_core.text.analysis import Analyzer

TABLE = "text_pages"
_TABLE_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}"


class LanceDBSettings(AdapterSettings):
    """An index in a folder, written by LanceDB."""

    table: str = Field(default=TABLE, pattern=f"^{_TABLE_NAME}$")
    """Name of the table. To keep several indexes in one folder, name them ``text_pages_<name of the index>``."""


class LanceDBStore(LocalStore["View", LanceDBSession]):
    """Keeps an index in a folder on this machine, with LanceDB.

    A write is one commit, seen whole or not at all, also after a crash. One process writes at a time, others wait; any
    number may read meanwhile. From 20,000 vectors on, search by vector uses an index and is approximate; below, it is
    exact. One instance serves several event loops and threads. It does not work in a process that is forked after its
    first use, as LanceDB does not. Closing it updates the indexes on the disk where much was written. Needs the extra
    ``lancedb``.

    Args:
        path: The folder; the first write makes it.
        embedder_id: Name of the embedder. Without it a new index has no vectors, and an index with vectors has only
            keyword search and can't be added to.
        dimension: Components of each vector, given exactly when the embedder is.
        table: Name of the table in the folder, which may hold several indexes.
        vectors: Names of the named vectors that chunks may have, at most eight.
        busy_timeout: Seconds that a write waits for another process that writes.

    Raises:
        InvalidParameterError: Only one of embedder and dimension was given, the time is negative, or a name is invalid.
    """

    Settings = LanceDBSettings

    def __init__(
        self,
        path: str | Path,
        *,
        embedder_id: str | None = None,
        dimension: int | None = None,
        analyzer: Analyzer | None = None,
        table: str = TABLE,
        busy_timeout: float = BUSY_TIMEOUT,
    ) -> None:
        if not re.fullmatch(_TABLE_NAME, table):
            msg = f"{table!r:.120} cannot name a table: letters, digits, _ and -, at most 100, no sign first"
            raise InvalidParameterError(msg)
        super().__init__(
            records,
            path,
            embedder_id=embedder_id,
            dimension=dimension,
            analyzer=analyzer,
            busy_timeout=busy_timeout,
        )
        self._table = table

    @classmethod
    def from_settings(cls, settings: LanceDBSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, loading nothing."""
        return cls(lancedb_folder(parts.location), **dict(settings), **parts.of_store)

    @property
    def is_loaded(self) -> bool:
        """Whether LanceDB is imported and the table open."""
        return self._session is not None and self._session.is_open

    async def load(self) -> None:
        """Import LanceDB and open the table, which takes seconds on a busy machine."""
        await self._exists()

    async def _search_both(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Search both ways, and fuse by LanceDB's reciprocal rank fusion.

        Each search returns as many candidates as the limit. The score is the sum of ``1 / (60 + rank)``.
        """
        return await self._search(request)

    async def _remember(self, settings: str) -> None:
        if await self._exists():
            await asyncio.to_thread(write_to_folder, self._path, self._table, settings)

    async def _optimize(self) -> None:
        """Update the indexes on the disk, and wait for it; otherwise that happens now and then by itself."""
        await self._current().sweep()

    async def _find_damage(self, document_ids: Collection[str] | None) -> StoredDamage:
        return await self._current().read(lambda view: records.find_damage(view, document_ids))

    async def _repair(self) -> None:
        await self._optimize()

    def _open(self) -> LanceDBSession:
        return LanceDBSession(self._path, self._table, self._busy_timeout, self._identity.manifest())

    def _leave(self, session: LanceDBSession) -> None:  # noqa: ARG002 - nothing can be done with it
        msg = (
            f"{self._path} was opened before this process was forked, and LanceDB's threads did not come. "
            "Start processes with multiprocessing's method 'spawn', and open it there."
        )
        raise StoreError(msg)

    async def _upsert(self, change: Change) -> None:
        def work(view: View, table: Any) -> tuple[None, int]:
            self._identity.check_change(change, self._checked_manifest(view))
            return None, records.apply_change(view, table, change, self._analyzer)

        await self._current().write(work)

    async def _remove(self, document_ids: Sequence[str]) -> int:
        def work(view: View, table: Any) -> tuple[int, int]:
            self._checked_manifest(view)
            return records.remove_documents(view, table, document_ids), 0

        return await self._current().write(work)

    def _search_view(self, session: LanceDBSession, request: SearchRequest, view: View) -> tuple[Candidate, ...]:
        from retrieval_core.adapters.stores.lancedb import search  # noqa: PLC0415 - numpy is slow to import

        self._checked_manifest(view)
        if request.vector is not None:
            self._identity.check_query_vector(request.vector, view.manifest)
        allowed = None if request.filter is None else session.allowed(view, request.filter)
        dense: list[Match] | None = None
        found: list[Match] = []
        if request.vector is not None:
            found = dense = search.search_vectors(view, request.vector, request.limit, allowed)
        if request.text is not None:
            found = search.search_words(view, self._analyzer, request.text, request.limit, allowed)
            if dense is not None:
                found = search.fuse(dense, found, request.limit)
        vectors = records.vectors_of(view, (item.chunk_id for item in found)) if request.with_vectors else {}
        candidates = tuple(Candidate(item.chunk_id, item.score, vector=vectors.get(item.chunk_id)) for item in found)
        if request.vector is not None:
            self._check_whole(view, VECTOR, candidates)
        if request.text is not None:
            self._check_whole(view, "terms", candidates)
        return candidates

    @staticmethod
    def _check_whole(view: View, column: str, found: Sequence[Candidate]) -> None:
        """Raise :class:`DamagedSearchError` if chunks lack what was searched; counted once for each version."""
        if column not in view.lost:
            view.lost[column] = records.count_lost(view, column)
        if view.lost[column]:
            kind = "vector" if column == VECTOR else "keyword"
            raise DamagedSearchError(kind, records.count(view)[1], view.lost[column], found)
