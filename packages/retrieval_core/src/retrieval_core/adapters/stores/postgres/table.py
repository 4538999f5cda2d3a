"""Read a table that another program filled, by a mapping of its columns.

A row is a record: its columns as JSON, without vectors and bytes, and with the fields of a preset's JSON column beside
them. Filters are evaluated by :func:`matches`; PostgreSQL leaves out rows that can't match, where it knows so. Whatever
a user gives is a parameter, and names of tables and columns are quoted as PostgreSQL has them.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from math import isnan
from typing import TYPE_CHECKING, Any, ClassVar

from retrieval_core.adapters.stores.fields import FieldCounter
from retrieval_core.adapters.stores.foreign import TABLE_PRESETS, ForeignStore, is_in_ranges
from retrieval_core.adapters.stores.postgres.schema import SentVector, vector_bytes, vectors_from
from retrieval_core.adapters.stores.postgres.table_filters import Table, TableFilter, quoted
from retrieval_core.adapters.stores.postgres.vectors import INDEXED_FROM
from retrieval_core.adapters.stores.services import distinct, find_best
from retrieval_core.errors import (
    DimensionMismatchError,
    IncompleteSearchError,
    IndexFormatError,
    InvalidParameterError,
    MissingExtraError,
    StoreError,
)
from retrieval_core.ports import Candidate, CollectionState, Fetched, StoredDamage
from retrieval_core.types.filters import And, In, matches

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
    from typing import NoReturn

    from retrieval_core.adapters.stores.postgres.session import Session, View
    from retrieval_core.ports import Change, FetchRequest, FieldInfo, SearchRequest, Side, SourceState, StoreInfo
    from retrieval_core.types import JSON, Chunk, Vector
    from retrieval_core.types.filters import Filter

SPREAD: Mapping[str, str] = {
    "langchain": "cmetadata",
    "langchain_table": "langchain_metadata",
    "llamaindex": "metadata_",
    "haystack": "meta",
}
"""The JSON column of each preset whose fields are those of the record."""
_PAGE = 1_000
_SAMPLE = 100
_LEAST_EF = 100
_LARGEST_EF = 1_000
_VECTORS = frozenset({"vector", "halfvec"})
_HIDDEN = frozenset({*_VECTORS, "sparsevec", "bytea", "tsvector"})
_COLUMNS = """
SELECT attname::text, typname::text, atttypmod, coalesce(attnum = key.indkey[0] AND key.indnkeyatts = 1, false),
    types.nspname::text, tables.nspname::text, relname::text
FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid JOIN pg_namespace AS types ON types.oid = typnamespace
JOIN pg_class ON pg_class.oid = attrelid JOIN pg_namespace AS tables ON tables.oid = relnamespace
LEFT JOIN pg_index AS key ON key.indrelid = attrelid AND key.indisprimary
WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_INDEXES = """
SELECT pg_get_indexdef(indexrelid, 1, true), indkey[0] > 0
FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam
JOIN pg_opclass ON pg_opclass.oid = indclass[0]
WHERE indrelid = to_regclass(%(table)s) AND indisvalid AND indpred IS NULL
    AND amname IN ('hnsw', 'ivfflat') AND opcname IN ('vector_cosine_ops', 'halfvec_cosine_ops')
    AND (indkey[0] = 0 OR EXISTS (SELECT FROM pg_attribute
        WHERE attrelid = indrelid AND attnum = indkey[0] AND attname = %(vector)s))
"""
_CAST = re.compile(r"\(?(.*)::(vector|halfvec)\(([0-9]+)\)\)?")
"""The expression of an index for vectors as another type."""


class PostgresTableStore(ForeignStore):
    """Searches a table that another program filled, by its vectors; it never writes.

    Scores are cosines. PostgreSQL uses the table's own HNSW or IVFFlat index if that is for cosine distance
    (``vector_cosine_ops``), and compares all vectors otherwise.

    Args:
        url: Address of the database.
        table: Its name, with the schema if that isn't in the search path, such as ``public.items``.
        fields: A preset: ``default``, ``langchain``, ``langchain_table``, ``llamaindex`` or ``haystack``. Or paths in a
            row by a chunk's field; the key ``preset`` names the preset that these add to.
        vector: The column with vectors, if there are several.
        rows: Only rows with these values are read, by column: such as ``collection_id`` of LangChain.
        session: Parameters of PostgreSQL, set in each transaction.
        pool_size: Maximum number of connections, for each event loop.
        embedder_id: Name of the embedder that made the vectors.
        dimension: Components of each vector.

    Raises:
        InvalidParameterError: As of :class:`ForeignStore`.
    """

    kind: ClassVar[str] = "postgres"
    presets = TABLE_PRESETS

    def __init__(
        self,
        location: str,
        *,
        url: str,
        table: str,
        fields: Mapping[str, str] | str | None = None,
        vector: str | None = None,
        rows: Mapping[str, str] | None = None,
        session: Mapping[str, str] | None = None,
        pool_size: int,
        busy_timeout: float,
        **rest: Any,
    ) -> None:
        super().__init__(location, fields=fields, **rest)
        preset = fields if isinstance(fields, str) else (fields or {}).get("preset", "default")
        self._spread = SPREAD.get(preset)
        self._url, self._table_name, self._vector, self._rows = url, table, vector, dict(rows or {})
        self._parameters = dict(session or {})
        self._arguments = {"pool_size": pool_size, "busy_timeout": busy_timeout, "parameters": self._parameters}
        self._session: Session | None = None
        self._table: Table | None = None

    @property
    def id(self) -> str:
        """Names the table, the rows that are read of it, and how."""
        read = sorted(self._rows.items()), sorted(self._parameters.items())
        return f"{self.location}, {self._vector}, {read}, {self._mapping.id}"

    @property
    def sides(self) -> frozenset[Side]:  # pyright: ignore[reportIncompatibleVariableOverride] - depends on the embedder
        """The kinds of search it does."""
        return frozenset({"dense"} if self._identity.dimension is not None else ())

    async def _describe(self) -> StoreInfo:
        state = await self._describe_collection()
        return self._info(None, documents=0, chunks=state.points, sides=self.sides, collection=state)

    async def _describe_collection(self) -> CollectionState:
        async with self._reading() as (view, table):
            where, given = self._where(table, None)
            count = (await view.rows(f"SELECT count(*) FROM {table.name} AS t WHERE {where}", given))[0][0]  # noqa: S608
            return CollectionState(await self._dimension(view, table), "Cosine", count, count, "green")

    async def _upsert(self, change: Change) -> None:
        self._refuse(change)

    async def _delete(self, document_ids: Sequence[str]) -> int:
        self._refuse(document_ids)

    def _refuse(self, _: object) -> NoReturn:
        msg = (
            f"{self.location}: another program filled this table, so it is only read. To write, remove "
            "store.postgres.table"
        )
        raise StoreError(msg)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Search with one statement, and more only if rows do not match or scores are equal at the limit.

        Raises:
            IncompleteSearchError: Too few match among the best 10,000; it carries the others.
        """
        if request.vector is None:
            msg = f"{self.location} has no keyword search: another program filled it; use mode 'dense'"
            raise StoreError(msg)
        self._identity.check_query_vector(request.vector, self._identity.manifest())
        query = SentVector(vector_bytes(request.vector))
        async with self._reading() as (view, table):
            dimension = await self._dimension(view, table)
            if dimension and dimension != len(request.vector):
                raise DimensionMismatchError(dimension, len(request.vector), self.location)
            where, given = self._where(table, request.filter)
            column = f"t.{quoted(table.vector)}"
            sent = f"%(query)s::vector({len(request.vector)})"
            distance = order = f"{column} <=> {sent}::{table.type}"
            if not table.is_indexed and (kind := table.casts.get(len(request.vector))):
                cast = f"::{kind}({len(request.vector)})"
                order = f"({column}{cast}) <=> {sent}{cast}"
            shown = f"{column}::vector" if request.with_vectors else "NULL"
            sql = _select(table, f"{shown}, 1 - ({distance})", f"{where} AND {column} IS NOT NULL") + (
                f" ORDER BY {order} LIMIT %(limit)s"
            )

            async def ask(count: int) -> Sequence[_Row]:
                await view.rows(
                    "SELECT set_config('hnsw.ef_search', %(breadth)s, true), "
                    "set_config('hnsw.iterative_scan', 'strict_order', true), "
                    "set_config('ivfflat.iterative_scan', 'relaxed_order', true)",
                    {"breadth": str(min(_LARGEST_EF, max(_LEAST_EF, 2 * count)))},
                )
                found = await view.rows(sql, {**given, "query": query, "limit": count})
                if len(found) < count and (table.is_indexed or table.casts):  # the index gave up, or there are no more
                    await view.rows("SELECT set_config('enable_indexscan', 'off', true)")
                    found = await view.rows(sql, {**given, "query": query, "limit": count})
                # The cosine of a vector of zeros is no number, which PostgreSQL sorts behind all others.
                read = (_Row(key, self._record(record), blob, score) for key, record, blob, score in found)
                return [row for row in read if not isnan(row.score)]

            def read(row: _Row) -> Candidate | None:
                if request.filter is not None and not matches(request.filter, self._visible(row)):
                    return None
                chunk = self._mapping.chunk(row.key, row.record)
                return Candidate(row.key, min(1.0, max(-1.0, row.score)), chunk, row.values)

            found, missing = await find_best(ask, read, request.limit, service="PostgreSQL", location=self.location)
        if missing is not None:
            raise IncompleteSearchError(missing, found)
        return found

    async def _fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested chunks that exist; there are no documents and sections."""
        names = frozenset(distinct(request.chunk_ids))
        documents = distinct(part.document_id for part in request.ranges)
        chunks: dict[str, Chunk] = {}
        vectors: dict[str, Vector] = {}
        async with self._reading() as (view, table):
            column = f"t.{quoted(table.vector)}::vector" if request.with_vectors else "NULL"
            wanted: list[tuple[Filter | None, list[str] | None]] = [(request.filter, list(names))] if names else []
            if documents:
                in_documents = In("document_id", tuple(documents))
                both = in_documents if request.filter is None else And((in_documents, request.filter))
                wanted.append((both, None))
            for condition, keys in wanted:
                async for row in self._scan(view, table, condition, column, keys=keys):
                    if request.filter is not None and not matches(request.filter, self._visible(row)):
                        continue
                    chunk = self._mapping.chunk(row.key, row.record)
                    if row.key in names or is_in_ranges(chunk, request.ranges):
                        chunks[row.key] = chunk
                        if row.values is not None:
                            vectors[row.key] = row.values
        return Fetched(chunks, vectors)

    async def _count_chunks(self, condition: Filter) -> int:
        found = 0
        async with self._reading() as (view, table):
            async for row in self._scan(view, table, condition):
                found += matches(condition, self._visible(row))
        return found

    async def _fields(self) -> Mapping[str, FieldInfo]:
        counter = FieldCounter()
        async with self._reading() as (view, table):
            async for row in self._scan(view, table, None):
                counter.add(self._visible(row))
        return counter.catalogue()

    async def _sample_fields(self) -> tuple[frozenset[str], int]:
        counter = FieldCounter()
        found = await self._sample()
        for row in found:
            counter.add(self._visible(row))
        return frozenset(counter.catalogue()), len(found)

    async def _sample_records(self) -> Sequence[Mapping[str, Any]]:
        return [row.record for row in await self._sample()]

    async def _sources(self) -> Mapping[str, SourceState]:
        return {}

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        del source
        return {}

    async def _find_damage(self, document_ids: Collection[str] | None) -> StoredDamage:
        """Find nothing: another program wrote no checksums."""
        del document_ids
        return StoredDamage()

    async def _document_ids(self) -> Sequence[str]:
        found: dict[str, None] = {}
        async with self._reading() as (view, table):
            async for row in self._scan(view, table, None):
                found[self._mapping.document_id(row.record) or row.key] = None
        return list(found)

    async def _close(self) -> None:
        if self._session is not None:
            await self._session.aclose()

    async def _vector_advice(self) -> tuple[list[str], list[str]]:
        """Return that there is no index of the vectors, and lines that choose one of LangChain's collections."""
        async with self._reading() as (view, table):
            name = table.name.replace("%%", "%")
            size = await view.rows("SELECT reltuples FROM pg_class WHERE oid = to_regclass(%(name)s)", {"name": name})
            missing: list[str] = []
            if size[0][0] >= INDEXED_FROM and not (table.is_indexed or table.casts):
                missing.append(
                    "an index for cosine distance, so all vectors are compared. To make one, run: CREATE INDEX "
                    f"CONCURRENTLY ON {name} USING hnsw ({quoted(table.vector)} {table.type}_cosine_ops)"
                )
            if self._rows or "collection_id" not in table.types:
                return missing, []
            other = f"{table.schema}.langchain_pg_collection"
            sql = "SELECT to_regclass(%(name)s) IS NOT NULL"
            known = await view.rows(sql, {"name": other.replace("%%", "%")})
            if not known[0][0]:
                return missing, []
            found = await view.rows(f"SELECT uuid::text, name FROM {other} ORDER BY name LIMIT 10", {})  # noqa: S608
        if len(found) < 2:
            return missing, []
        lines = [f"rows = {{ collection_id = {json.dumps(key)} }}  # {json.dumps(title)}" for key, title in found]
        return missing, [lines[0], *(f"# or: {line}" for line in lines[1:])]

    async def _sample(self) -> list[_Row]:
        async with self._reading() as (view, table):
            where, given = self._where(table, None)
            found = await view.rows(f"{_select(table, 'NULL', where)} LIMIT {_SAMPLE}", given)
            return [_Row(key, self._record(record)) for key, record, _ in found]

    async def _scan(
        self,
        view: View,
        table: Table,
        condition: Filter | None,
        column: str = "NULL",
        *,
        keys: Sequence[str] | None = None,
    ) -> AsyncIterator[_Row]:
        """Yield the rows that may match a filter, page after page, in the order of their keys."""
        where, given = self._where(table, condition)
        key = f"t.{quoted(table.key)}"
        if keys is not None:
            where += f" AND {TableFilter(table, self._mapping, given).is_key(keys)}"
        page = _select(table, column, where) + f" ORDER BY {key} LIMIT {_PAGE}"
        following = _select(table, column, f"{where} AND {key} > %(last)s::text::{table.key_type}")
        following += f" ORDER BY {key} LIMIT {_PAGE}"
        sql = page if keys is None else _select(table, column, where)
        while found := await view.rows(sql, given):
            for name, record, blob in found:
                yield _Row(name, self._record(record), blob)
            if keys is not None or len(found) < _PAGE:
                return
            sql, given = following, {**given, "last": found[-1][0]}

    def _where(self, table: Table, condition: Filter | None) -> tuple[str, dict[str, Any]]:
        """Return an expression for the rows that are read and may match a filter, and its parameters."""
        given: dict[str, Any] = {}
        parts = ["true"]
        for name, value in self._rows.items():
            if name not in table.types:
                known = ", ".join(table.types)
                msg = f"store.postgres.rows: {self.location} has no column {name!r:.80}; its columns are {known}"
                raise InvalidParameterError(msg)
            given[key := f"row{len(given)}"] = value
            parts.append(f"t.{quoted(name)}::text = %({key})s")
        if (narrowed := TableFilter(table, self._mapping, given).write(condition)) is not None:
            parts.append(narrowed)
        return " AND ".join(parts), given

    def _visible(self, row: _Row) -> Mapping[str, JSON]:
        return self._mapping.visible(row.key, row.record)

    def _record(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row as a record; a column wins over a field of the same name."""
        if self._spread is None:
            return dict(columns)
        own = {name: value for name, value in columns.items() if name != self._spread and value is not None}
        inner = columns.get(self._spread)
        return {**inner, **own} if isinstance(inner, dict) else own

    async def _dimension(self, view: View, table: Table) -> int:
        """Return how many components the vectors have: those of one row if the column doesn't say so."""
        if table.dimension:
            return table.dimension
        where, given = self._where(table, None)
        column = f"t.{quoted(table.vector)}"
        sql = f"SELECT vector_dims({column}) FROM {table.name} AS t WHERE {where} AND {column} IS NOT NULL LIMIT 1"  # noqa: S608
        found = await view.rows(sql, given)
        return found[0][0] if found else 0

    @asynccontextmanager
    async def _reading(self) -> AsyncGenerator[tuple[View, Table]]:
        async with (await self._opened()).reading_others() as view:
            if self._table is None:
                self._table = await self._find_table(view)
            yield view, self._table

    async def _find_table(self, view: View) -> Table:
        """Return the table's columns.

        Raises:
            IndexFormatError: There is no such table, or it lacks a primary key of one column, or vectors.
        """
        regclass = ".".join(map(quoted, self._table_name.split(".", 1))).replace("%%", "%")
        columns = await view.rows(_COLUMNS, {"table": regclass})
        if not columns:
            msg = f"{self.location}: there is no such table. Set store.postgres.table to one, such as public.items"
            raise IndexFormatError(msg)
        keys = [(column, kind, schema) for column, kind, _, is_key, schema, *_ in columns if is_key]
        if not keys:
            msg = f"{self.location} has no primary key of one column, by which results could be named"
            raise IndexFormatError(msg)
        vectors = {column: (kind, size) for column, kind, size, *_ in columns if kind in _VECTORS}
        if len(vectors) != 1 and self._vector not in vectors:
            msg = (
                f"{self.location} has the columns of vectors {', '.join(vectors) or 'none'}, and store.postgres.vector "
                f"is {self._vector!r:.80}. Set it to one of them."
            )
            raise IndexFormatError(msg)
        vector = self._vector or next(iter(vectors))
        if vector not in vectors:
            msg = f"{self.location} has no column of vectors {vector!r:.80}; it has {', '.join(vectors)}"
            raise IndexFormatError(msg)
        kind, size = vectors[vector]
        casts: dict[int, str] = {}
        is_indexed = False
        for expression, is_column in await view.rows(_INDEXES, {"table": regclass, "vector": vector}):
            is_indexed |= is_column
            if (cast := _CAST.fullmatch(expression)) and cast[1].strip('"').replace('""', '"') == vector:
                casts[int(cast[3])] = cast[2]
        types = {column: kind for column, kind, *_ in columns if kind not in _HIDDEN}
        fields = self._spread if self._spread in types else None
        key, key_type, key_schema = keys[0]
        *_, schema, relation = columns[0]
        return Table(
            schema=quoted(schema),
            name=f"{quoted(schema)}.{quoted(relation)}",
            key=key,
            key_type=f"{quoted(key_schema)}.{quoted(key_type)}",
            vector=vector,
            type=kind,
            dimension=max(0, size),
            types=types,
            fields=fields,
            casts=casts,
            is_indexed=is_indexed,
        )

    async def _opened(self) -> Session:
        if self._session is None:
            made = await new_session(self._url, "", self.location, **self._arguments)
            self._session = self._session or made
        return self._session


async def new_session(*given: Any, **more: Any) -> Session:
    """Return a session, without connecting.

    Raises:
        MissingExtraError: The driver isn't installed.
    """
    try:
        module: Any = await asyncio.to_thread(import_module, f"{__package__}.session")
    except ImportError as error:
        raise MissingExtraError("postgres", "The PostgreSQL store") from error
    return module.Session(*given, **more)


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    record: dict[str, Any]
    blob: bytes | None = None
    score: float = 0.0

    @property
    def values(self) -> Vector | None:
        return None if self.blob is None else vectors_from([self.blob])[0]


def _select(table: Table, more: str, where: str) -> str:
    """Return the statement for rows with their keys, as JSON, and further columns."""
    # A key that is named so would be a chunk's ID and a field of the same name.
    columns = ", ".join(f"t.{quoted(name)}" for name in table.types if (name, name) != ("id", table.key))
    return (
        f"SELECT t.{quoted(table.key)}::text, to_jsonb(r), {more} FROM {table.name} AS t "  # noqa: S608 - quoted names
        f"CROSS JOIN LATERAL (SELECT {columns}) AS r WHERE {where}"
    )
