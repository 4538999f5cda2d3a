"""The PostgreSQL store."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.stores.base import StoreBase
from retrieval_core.adapters.stores.local import BUSY_TIMEOUT
from retrieval_core.adapters.stores.postgres import damage, records, vectors, words
from retrieval_core.adapters.stores.postgres.schema import EXAMPLE, decode
from retrieval_core.adapters.stores.postgres.table import PostgresTableStore, new_session
from retrieval_core.adapters.vendors import LoadsPackage
from retrieval_core.config.base import AdapterSettings, FieldNames
from retrieval_core.errors import (
    ConfigurationError,
    DamagedSearchError,
    NotYetEmbeddedError,
)
from retrieval_core.ports import Candidate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.adapters.stores.postgres.session import Session, View
    from retrieval_core.ports import (
        Change,
        Fetched,
        FetchRequest,
        FieldInfo,
        SearchRequest,
        SourceState,
        StoredDamage,
        StoreInfo,
        TermCounts,
    )
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Vector
    from retrieval_core.types.filters import Filter

COLLECTION = "retrieval"
_NAME = r"[A-Za-z_][A-Za-z0-9_]{0,47}"
POOL_SIZE = 8


class PostgresSettings(AdapterSettings):
    """A schema of a PostgreSQL database with pgvector."""

    required: ClassVar[dict[str, str]] = {"url": "postgresql://user@localhost:5432/database"}

    url: SecretStr | None = Field(default=None, validation_alias=AliasChoices("url", "POSTGRES_URL"))
    """Address of the database: ``postgresql://user:password@host:5432/database``. Missing parts come from PostgreSQL's
    own environment variables, such as ``PGPASSWORD``. Default: the environment variable ``POSTGRES_URL``."""
    collection: str = Field(default=COLLECTION, pattern=f"^{_NAME}$")
    """Name of the schema. The first write creates it."""
    pool_size: int = Field(default=POOL_SIZE, ge=1, le=1000)
    """Maximum number of connections of one process."""
    table: str | None = None
    """Name of a table that another program filled, to be searched in place of an index, such as ``public.items``."""
    fields: FieldNames = Field(default_factory=dict)
    """For such a table: the column for each field of a chunk, such as ``text``. Or a preset: ``langchain``,
    ``langchain_table``, ``llamaindex`` or ``haystack``. Default: the preset ``default``."""
    vector: str | None = None
    """Name of the column with vectors, if such a table has several."""
    rows: dict[str, str] = Field(default_factory=dict)
    """Values by column: of such a table, only rows with these are read."""
    session: dict[str, str] = Field(default_factory=dict)
    """Parameters of PostgreSQL that are set in each transaction that reads such a table, such as ``app.tenant`` for its
    row-level security, or ``role``."""


class PostgresStore(LoadsPackage, StoreBase):
    """Keeps an index in a schema of a PostgreSQL database, which any number of processes and machines use at once.

    A change is one transaction; writes of one collection come after each other, and readers never wait. From 10,000
    chunks on, vector search uses an HNSW index; below, and if a filter leaves few chunks, it is exact. Needs the extra
    ``postgres``, and the extension ``vector`` (pgvector, 0.8 or later) in the database.

    Args:
        url: Address of the database: ``postgresql://user:password@host:5432/database``.
        collection: Name of the schema; the first write creates it.
        pool_size: Maximum number of connections, for each event loop.
        busy_timeout: Seconds that a write waits for another one.
        embedder_id: Name of the embedder. Without it a new index has no vectors, and an index with vectors has only
            keyword search and can't be added to.
        dimension: Components of each vector, given exactly when the embedder is.

    Raises:
        ConfigurationError: The address is missing or none of PostgreSQL, or the name can't be used.
        InvalidParameterError: Only one of embedder and dimension was given.
    """

    package: ClassVar[str] = "psycopg"
    Settings = PostgresSettings
    has_claims = True

    def __init__(
        self,
        *,
        url: SecretStr | str | None = None,
        collection: str = COLLECTION,
        pool_size: int = POOL_SIZE,
        busy_timeout: float = BUSY_TIMEOUT,
        embedder_id: str | None = None,
        dimension: int | None = None,
        analyzer: Analyzer | None = None,
    ) -> None:
        self._url = (url.get_secret_value() if isinstance(url, SecretStr) else url or "").strip()
        if re.fullmatch(_NAME, collection) is None:
            msg = f"{collection!r:.80} cannot name a schema: at most 48 letters, digits and _, no digit first"
            raise ConfigurationError(msg)
        location = f"PostgreSQL schema {collection} at {_place_of(self._url)}"
        super().__init__(location, embedder_id=embedder_id, dimension=dimension, analyzer=analyzer)
        self._arguments = {"pool_size": pool_size, "busy_timeout": busy_timeout}
        self._collection = collection
        self._session: Session | None = None
        self._postings = words.PostingsCache()

    @classmethod
    def from_settings(cls, settings: PostgresSettings, parts: AdapterParts) -> Self | PostgresTableStore:
        """Make it from its settings, loading nothing; for a table of another program, the store that reads it.

        Raises:
            ConfigurationError: The address is none, or there are settings of a table and no table.
        """
        given = dict(settings)
        of_table = {name: given.pop(name) for name in ("table", "fields", "vector", "rows", "session")}
        if of_table["table"]:
            return open_table(settings, of_table, parts)
        if unused := sorted(name for name, value in of_table.items() if value):
            msg = f"store.postgres.{unused[0]} is only for a table of another program; set store.postgres.table"
            raise ConfigurationError(msg)
        return cls(**given, **parts.of_store)

    async def _describe(self) -> StoreInfo:
        async with self._reading() as view:
            state, waiting = view.state, 0
            documents, chunks = await records.count(view)
            if state.is_waiting:
                waiting = await records.count_passing(view, None, records.WAITING)
            return self._info(
                state.manifest, documents=documents, chunks=chunks, generation=state.generation, unembedded=waiting
            )

    async def _upsert(self, change: Change) -> None:
        prepared = await asyncio.to_thread(records.prepare, change, self._analyzer)
        async with (await self._opened()).writing(self._identity.manifest()) as view:
            self._manifest_for(change, view.state.manifest)
            await records.apply_change(view, change, prepared)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        async with self._writing() as view:
            return await records.remove(view, document_ids)

    async def _unembedded(self) -> Mapping[str, str]:
        async with self._reading() as view:
            return await records.unembedded(view)

    async def _add_vectors(self, change: Change) -> int:
        async with self._writing() as view:
            self._identity.check_change(change, view.state.manifest)
            return await records.add_vectors(view, change)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        async with self._reading() as view:
            if request.vector is not None:
                return await self._search_vectors(view, request, request.vector)
            found = await words.search_words(view, self._postings, self._analyzer, request)
            candidates = await self._candidates(view, request, found)
            if missing := max(0, await words.count_missing(view)):
                raise DamagedSearchError("keyword", view.state.chunks, missing, candidates)
            return candidates

    async def _search_vectors(self, view: View, request: SearchRequest, vector: Vector) -> tuple[Candidate, ...]:
        self._identity.check_query_vector(vector, view.state.manifest)
        found = await vectors.search_vectors(view, vector, request.limit, request.filter)
        candidates = await self._candidates(view, request, found)
        if view.state.is_waiting and (
            without := await records.count_passing(view, request.filter, "embedding IS NULL")
        ):
            chunks = await records.count_passing(view, request.filter)
            if await records.count_passing(view, None, records.WAITING):
                raise NotYetEmbeddedError(chunks, chunks - without, candidates)
            raise DamagedSearchError("vector", chunks, without, candidates)
        return candidates

    async def _candidates(
        self, view: View, request: SearchRequest, found: Sequence[tuple[str, float]]
    ) -> tuple[Candidate, ...]:
        best = sorted(found, key=lambda item: (-item[1], item[0]))[: request.limit]
        of = await vectors.vectors_of(view, [name for name, _ in best]) if request.with_vectors else {}
        return tuple([Candidate(decode(name), score, vector=of.get(name)) for name, score in best])

    async def _fetch(self, request: FetchRequest) -> Fetched:
        async with self._reading() as view:
            return await records.fetch(view, request)

    async def _version(self) -> str | None:
        """Name the state of the index, without a request while nobody writes."""
        return await (await self._opened()).version()

    async def _count_chunks(self, condition: Filter) -> int:
        async with self._reading() as view:
            return await records.count_passing(view, condition)

    async def _count_terms(self, terms: Sequence[str], condition: Filter | None) -> TermCounts:
        async with self._reading() as view:
            return await words.count_terms(view, self._postings, terms, condition)

    async def _fields(self) -> Mapping[str, FieldInfo]:
        async with self._reading() as view:
            return await records.fields(view)

    async def _sources(self, names: Collection[str] | None = None) -> Mapping[str, SourceState]:
        async with self._reading() as view:
            return await records.sources(view, names)

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        async with self._reading() as view:
            return await records.documents_of(view, source)

    async def _document_ids(self) -> Sequence[str]:
        async with self._reading() as view:
            return await records.document_ids(view)

    async def _find_damage(self, document_ids: Collection[str] | None) -> StoredDamage:
        """Compare what is stored with its checksums: records, vectors, postings, and the fields that filters see."""
        async with self._reading() as view:
            return await damage.find_damage(view, document_ids)

    async def _repair(self) -> None:
        """Build postings and fields again, and have damaged vectors wait for being embedded."""
        async with self._writing() as view:
            await damage.repair(view, self._analyzer)

    async def _optimize(self) -> None:
        """Merge small segments of postings, and make the index of vectors if there are many."""
        async with self._writing() as view:
            view.is_written = await words.merge_small_segments(view)
            state = view.state
        if not state.is_indexed and state.chunks >= vectors.INDEXED_FROM and state.manifest.dimension is not None:
            await (await self._opened()).index_vectors(state.manifest.dimension)

    @asynccontextmanager
    async def claimed(self, work: str, *, is_patient: bool = True) -> AsyncGenerator[bool]:
        """Keep other processes from the same work; see :meth:`Store.claimed`."""
        async with (await self._opened()).claimed(work, is_patient=is_patient) as is_ours:
            yield is_ours

    async def _close(self) -> None:
        if self._session is not None:
            await self._session.aclose()

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[View]:
        async with (await self._opened()).reading() as view:
            self._identity.check_manifest(view.state.manifest)
            yield view

    @asynccontextmanager
    async def _writing(self) -> AsyncGenerator[View]:
        async with (await self._opened()).writing() as view:
            self._identity.check_manifest(view.state.manifest)
            yield view

    async def _opened(self) -> Session:
        if self._session is None:
            made = await new_session(self._url, self._collection, self.location, **self._arguments)
            self._session = self._session or made
        return self._session


def open_table(settings: PostgresSettings, of_table: Mapping[str, Any], parts: AdapterParts) -> PostgresTableStore:
    """Return the store for a table that another program filled, without connecting."""
    url = (settings.url.get_secret_value() if settings.url else "").strip()
    location = f"PostgreSQL table {of_table['table']} at {_place_of(url)}"
    given: dict[str, Any] = {**of_table, "pool_size": settings.pool_size, "busy_timeout": BUSY_TIMEOUT}
    return PostgresTableStore(location, url=url, **given, **parts.of_store)


def _place_of(url: str) -> str:
    """Return host and database of an address, for people, without its secrets.

    Raises:
        ConfigurationError: It is no address of PostgreSQL. The message shows none of it.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or dict(parse_qsl(parts.query)).get("host", "localhost"), parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme not in {"postgresql", "postgres"}:
        msg = f"store.postgres.url must be an address such as {EXAMPLE}; set it, or POSTGRES_URL in the environment"
        raise ConfigurationError(msg, missing_keys=() if url else ("POSTGRES_URL",))
    return f"{host}{f':{port}' if port else ''}{parts.path if len(parts.path) > 1 else ''}"
