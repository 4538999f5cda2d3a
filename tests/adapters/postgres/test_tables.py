"""Tables that another program made, with names that have to be quoted, and columns of many types."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

import numpy as np
import psycopg

from retrieval_core import parse_filter
from retrieval_core.adapters.parts import AdapterParts
from retrieval_core.adapters.stores.postgres import PostgresStore
from retrieval_core.adapters.stores.postgres.session import View
from retrieval_core.errors import ConfigurationError, IndexFormatError, InvalidParameterError, StoreError
from retrieval_core.ports import ChunkRange, FetchRequest, SearchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types.filters import CONDITIONS, And, Not, Or, matches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from support.postgres_server import PostgresServer

DIMENSION = 8
TABLE = '"odd"."Odd s.p %%""x"'
"""As it is written in a statement with parameters."""
NAME = 'odd.Odd s.p %"x'
COLUMNS = (
    '"id" {key} PRIMARY KEY, "Body %%" text, doc varchar, pages int, price numeric, rate real, live bool, day date, '
    'place uuid, tags text[], "more %%" {json}, "vector %%" {vector}'
)
PLACE = "5a0b4b52-15f5-4e31-9a1f-3f7e37b1f6d1"
ROWS: tuple[tuple[Any, ...], ...] = (
    ("Logs say which rule.", "a.md", 7, 3.5, 0.1, True, "2020-05-01", PLACE, ["net", "ufw"], {"year": 2020, "b": "x"}),
    ("A full disk.", "7", -1, None, 2, False, "2021-01-01", None, [], {"year": 2021.0, "b": ["x", 2], "a": {"c.d": 1}}),
    ("Keys rotate.", None, None, 3, None, None, None, None, None, {"year": "2020", "a": {"c": {"d": True}}, "b": None}),
    ("Übung ☃", "a.md", 0, 1e20, -1.5, True, None, PLACE, ["☃"], {"b": "7", "year": [1.5, 2**53 + 1], "a.c": "ü"}),
    ("Last", "", 2**31 - 1, 7, None, False, None, None, [None, "7"], None),
)
FIELDS = (
    *("id", "document_id", "source", "doc", "pages", "price", "rate", "live", "day", "place", "tags", "chunk_index"),
    *(
        "year",
        "b",
        "a.c.d",
        "a.c",
        "a",
        "none",
        "more %",
        "more %.year",
        "%s",
        "x'\"; --",
        "\ud800",
        "a\0b",
        "a." * 5000,
    ),
)
VALUES = ("a.md", "7", "7.0", "", "x", "ü", "☃", "net", "2020", "2020-05-01", PLACE, "1", "\ud800", "a\0b", "'; --%s")
NUMBERS = (7, 0, -1, 2020, 2021.0, 3.5, 0.1, 1.5, 1e20, 2**53 + 1, 2**80, True, False)
MAPPINGS: tuple[dict[str, str], ...] = ({"metadata": "more %"}, {})


def vector_of(text: str) -> Any:
    """Return the vector of a text."""
    return asyncio.run(FakeEmbedder(dimension=DIMENSION).embed_query(text))


@contextmanager
def made(
    server: PostgresServer, *, key: str = "int", json_type: str = "jsonb", vector: str = "vector(8)"
) -> Generator[Any]:
    """Make a table, and give a connection to its database."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute("CREATE SCHEMA IF NOT EXISTS odd")
        columns = COLUMNS.format(key=key, json=json_type, vector=vector)
        connection.execute(f"CREATE TABLE {TABLE} ({columns})".replace("%%", "%").encode())
        try:
            yield connection
        finally:
            connection.execute(f"DROP TABLE {TABLE}".replace("%%", "%").encode())


def fill(connection: Any, key: str = "int", rows: Sequence[tuple[Any, ...]] = ROWS) -> None:
    """Write rows, each with the vector of its text."""
    kinds = (
        f"%s::text::{key}, %s, %s, %s, %s, %s, %s, %s::text::date, %s::text::uuid, %s, %s::text::json, %s::text::vector"
    )
    for number, (text, *values, more) in enumerate(rows):
        name = f"00000000-0000-0000-0000-00000000000{number}" if key == "uuid" else str(number)
        last = (None if more is None else json.dumps(more), json.dumps(vector_of(text).tolist()))
        connection.execute(f"INSERT INTO {TABLE} VALUES ({kinds})".encode(), (name, text, *values, *last))


def use(url: str, work: Callable[[Any], Awaitable[Any]], *, table: str = NAME, **given: Any) -> Any:
    """Open a table and return what a function gives of its store."""

    async def run() -> Any:
        settings = PostgresStore.Settings.model_validate({"url": url, "table": table, **given})
        store = PostgresStore.from_settings(settings, AdapterParts(embedder=FakeEmbedder(dimension=DIMENSION)))
        try:
            return await work(store)
        finally:
            await store.aclose()

    return asyncio.run(run())


def fields(**more: str) -> dict[str, str]:
    """Return the mapping of the table."""
    return {"text": "Body %", "document_id": "doc", **more}


@pytest.mark.parametrize("mapping", MAPPINGS, ids=["json", "columns"])
@pytest.mark.parametrize(("key", "json_type"), [("int", "jsonb"), ("uuid", "json"), ("text", "json")])
def test_filters_mean_what_they_mean_in_python(
    key: str, json_type: str, mapping: dict[str, str], postgres: PostgresServer
) -> None:
    conditions: list[Any] = []
    for name in FIELDS:
        for operator, kind in CONDITIONS.items():
            for value in (*VALUES, *NUMBERS):
                many, unequal = operator in {"$in", "$nin"}, operator in {"$gt", "$gte", "$lt", "$lte"}
                if operator in {"$text", "$glob", "$ne", "$nin"} or (unequal and isinstance(value, bool)):
                    continue
                given: Any = (value, "1") if many else isinstance(value, str) if operator == "$exists" else value
                conditions.append(kind(name, given))
    conditions = conditions[::3]  # of each field, operator and value
    pairs = list(zip(conditions, conditions[17:] + conditions[:17], strict=True))[::11]
    conditions += [join(pair) for pair in pairs for join in (And, Or)] + [Not(one) for one in conditions[::13]]

    async def work(store: Any) -> None:
        records = {row.key: store._visible(row) for row in await store._sample()}
        assert len(records) == len(ROWS)
        async with store._reading() as (view, table):
            for condition in conditions:
                where, parameters = store._where(table, condition)
                sql = f"SELECT t.id::text FROM {table.name} AS t WHERE {where}"
                found = {name for (name,) in await view.rows(sql, parameters)}
                assert {name for name, seen in records.items() if matches(condition, seen)} <= found, condition
        for condition in conditions[::29]:
            wanted = {name for name, seen in records.items() if matches(condition, seen)}
            found = await store.search(SearchRequest(vector=vector, limit=10, filter=condition))
            assert {one.chunk_id for one in found} == wanted, condition
            assert await store.count_chunks(condition) == len(wanted), condition
            fetched = await store.fetch(FetchRequest(chunk_ids=tuple(records), filter=condition))
            assert set(fetched.chunks) == wanted, condition

    vector = vector_of("anything")
    with made(postgres, key=key, json_type=json_type) as connection:
        fill(connection, key)
        use(postgres.url, work, fields=fields(**mapping))


def test_rows_are_read_by_their_keys_and_documents(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retrieval_core.adapters.stores.postgres.table._PAGE", 1)

    async def work(store: Any) -> tuple[Any, ...]:
        keys = FetchRequest(chunk_ids=("0", "01", "x", "1", "a\0b", "\ud800"), with_vectors=True)
        document = FetchRequest(ranges=(ChunkRange("a.md", 0, 5), ChunkRange("2", 0, 0), ChunkRange("\0", 0, 0)))
        return await store.fetch(keys), (await store.fetch(document)).chunks, await store.document_ids()

    with made(postgres) as connection:
        fill(connection)
        fetched, chunks, documents = use(postgres.url, work, fields=fields(metadata="more %"))
    assert set(fetched.chunks) == {"0", "1"}
    assert fetched.vectors["0"] == pytest.approx(vector_of(ROWS[0][0]), abs=1e-6)
    assert set(chunks) == {"0", "2", "3"}  # a row without a document ID is a document of its own
    assert set(documents) == {"a.md", "7", "2", "4"}


def test_a_table_is_only_read(postgres: PostgresServer) -> None:
    with made(postgres) as connection:
        fill(connection)
        with pytest.raises(StoreError, match="only read"):
            use(postgres.url, lambda store: store.delete(["a"]), fields=fields())
        with pytest.raises(StoreError, match="no keyword search"):
            use(postgres.url, lambda store: store.search(SearchRequest(text="disk", limit=2)), fields=fields())


def test_rows_of_other_values_are_not_read(postgres: PostgresServer) -> None:
    request = SearchRequest(vector=vector_of("disk"), limit=10)
    keys = FetchRequest(chunk_ids=("0", "1"))
    with made(postgres) as connection:
        fill(connection)
        given: dict[str, Any] = {"fields": fields(), "rows": {"doc": "a.md"}}
        assert {one.chunk_id for one in use(postgres.url, lambda store: store.search(request), **given)} == {"0", "3"}
        assert set(use(postgres.url, lambda store: store.fetch(keys), **given).chunks) == {"0"}
        with pytest.raises(InvalidParameterError, match="no column 'group'"):
            use(postgres.url, lambda store: store.search(request), fields=fields(), rows={"group": "a"})
    with pytest.raises(IndexFormatError, match="no such table"):
        use(postgres.url, lambda store: store.search(request), table="missing")


INDEXES = (
    ("vector(8)", '("vector %%" vector_cosine_ops)'),
    ("halfvec(8)", '("vector %%" halfvec_cosine_ops)'),
    ("vector", '(("vector %%"::vector(8)) vector_cosine_ops)'),
    ("vector", '(("vector %%"::halfvec(8)) halfvec_cosine_ops)'),
)


@pytest.mark.parametrize(("vector", "index"), INDEXES)
def test_an_index_of_the_table_is_used(
    vector: str, index: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of vectors, with and without a filter; where a document is read, that of JSON."""
    plans: list[str] = []
    read = View.rows

    async def explained(self: View, statement: str, parameters: Any = None) -> list[Any]:
        if statement.startswith("SELECT t."):
            plans.append("\n".join(line for (line,) in await read(self, f"EXPLAIN {statement}", parameters)))
        return await read(self, statement, parameters)

    monkeypatch.setattr(View, "rows", explained)
    texts = [f"Rule {number}" for number in range(40)]
    request = SearchRequest(vector=vector_of(texts[7]), limit=3)
    filtered = SearchRequest(vector=vector_of(texts[7]), limit=3, filter=parse_filter({"pages": {"$gt": 1}}))
    document = FetchRequest(ranges=(ChunkRange("d7", 0, 0),))
    # For a table this small, reading all of it is cheaper.
    cheap = {"enable_seqscan": "off", "enable_sort": "off"}
    with made(postgres, vector=vector) as connection:
        nothing = (None,) * 6
        fill(connection, rows=[(one, None, at, *nothing, {"doc": f"d{at}"}) for at, one in enumerate(texts)])
        connection.execute(f"CREATE INDEX near ON {TABLE} USING hnsw {index}".replace("%%", "%").encode())
        connection.execute(f'CREATE INDEX inside ON {TABLE} USING gin ("more %%")'.replace("%%", "%").encode())
        given: dict[str, Any] = {"fields": fields(document_id="more %.doc"), "session": cheap}
        for each in (request, filtered):
            found = use(postgres.url, lambda store, each=each: store.search(each), **given)
            assert found[0].score == pytest.approx(1, abs=1e-3)
            assert "Index Scan using near" in plans[-1]
        given["session"] = {"enable_seqscan": "off", "enable_indexscan": "off"}  # of the key, for the order of pages
        fetched = use(postgres.url, lambda store: store.fetch(document), **given)
        assert [chunk.text for chunk in fetched.chunks.values()] == [texts[7]]
        assert "Bitmap Index Scan on inside" in plans[-1]


def test_all_vectors_are_compared_if_the_index_gives_up(postgres: PostgresServer) -> None:
    """It looks at about the nearest hundred, none of which passes the filter."""
    query = np.eye(DIMENSION, dtype=np.float32)[0]
    request = SearchRequest(vector=query, limit=3, filter=parse_filter({"pages": {"$gte": 600}}))
    with made(postgres) as connection:
        for statement in (
            (
                f'INSERT INTO {TABLE} ("id", "Body %%", pages, "vector %%") '
                "SELECT g, 'Rule', g, ARRAY[600, g, 0, 0, 0, 0, 0, 0]::vector(8) FROM generate_series(1, 600) AS g"
            ),
            f'CREATE INDEX near ON {TABLE} USING hnsw ("vector %%" vector_cosine_ops)',
        ):
            connection.execute(statement.replace("%%", "%").encode())
        session = {"enable_sort": "off", "hnsw.max_scan_tuples": "1"}
        found = use(postgres.url, lambda store: store.search(request), fields=fields(), session=session)
    assert [one.chunk_id for one in found] == ["600"]


def test_policies_of_the_table_see_the_session(postgres: PostgresServer) -> None:
    """A role that is not the owner reads the rows that the policy allows for the parameters of its transaction."""

    async def work(store: Any) -> tuple[set[str], int, set[str]]:
        found = await store.search(SearchRequest(vector=vector_of_query, limit=10))
        fetched = await store.fetch(FetchRequest(chunk_ids=("0", "1", "2")))
        return {one.chunk_id for one in found}, (await store.describe()).chunks, set(fetched.chunks)

    vector_of_query = vector_of("disk")
    with made(postgres) as connection:
        fill(connection)
        connection.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader; GRANT USAGE ON SCHEMA odd TO reader")
        for statement in (
            f"GRANT SELECT ON {TABLE} TO reader",
            f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY own ON {TABLE} TO reader USING (doc = current_setting('app.tenant', true))",
        ):
            connection.execute(statement.replace("%%", "%").encode())
        try:
            cases: list[tuple[dict[str, str], set[str]]] = [
                ({"app.tenant": "a.md"}, {"0", "3"}),
                ({"app.tenant": "7' OR true"}, set()),
                ({}, set()),
            ]
            for tenant, wanted in cases:
                found = use(postgres.url, work, fields=fields(), session={"role": "reader", **tenant})
                assert found == (wanted, len(wanted), wanted & {"0", "1", "2"})
            with pytest.raises(StoreError, match="no_such"):
                use(postgres.url, work, fields=fields(), session={"no_such": "1"})
        finally:
            connection.execute(f"DROP POLICY own ON {TABLE}".replace("%%", "%").encode())
            connection.execute("DROP OWNED BY reader; DROP ROLE reader")
    with pytest.raises(ConfigurationError, match=r"store\.postgres\.session is only for a table"):
        use(postgres.url, work, table="", session={"app.tenant": "a"})


def test_keys_of_19_digits_are_found(postgres: PostgresServer) -> None:
    """They name chunks and documents exactly; one that no integer of PostgreSQL can be names nothing."""
    keys = [str(each) for each in (2**63 - 1, -(2**63), 1234567890123456789, 5)]
    others = (str(2**63), "9999999999999999999", "1234567890123456788", "1234567890123456790")
    query = SearchRequest(vector=vector_of("5"), limit=10)

    async def work(store: Any) -> None:
        assert {one.chunk_id for one in await store.search(query)} == {*keys}
        assert set((await store.fetch(FetchRequest(chunk_ids=(*keys, *others)))).chunks) == {*keys}
        assert {*await store.document_ids()} == {*keys}
        for key in keys:
            document = await store.fetch(FetchRequest(ranges=(ChunkRange.whole(key),)))
            assert {name: chunk.document_id for name, chunk in document.chunks.items()} == {key: key}
            for condition in ({"id": key}, {"document_id": key}, {"doc": int(key)}, {"doc": {"$in": [int(key), 1]}}):
                found = await store.search(SearchRequest(vector=query.vector, limit=9, filter=parse_filter(condition)))
                assert [one.chunk_id for one in found] == [key], condition
                assert found[0].chunk.metadata["doc"] == int(key)

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE numbers (id bigint PRIMARY KEY, text text, doc bigint, vector vector(8))")
        try:
            for key in keys:
                row = (key, key, f"text {key}", json.dumps(vector_of(key).tolist()))
                kinds = "%s::text::int8, %s::text::int8, %s, %s::text::vector"
                connection.execute(f"INSERT INTO numbers (id, doc, text, vector) VALUES ({kinds})".encode(), row)
            use(postgres.url, work, table="public.numbers", fields={"document_id": "doc"})
        finally:
            connection.execute("DROP TABLE numbers")


SCHEMAS = """
CREATE SCHEMA one; CREATE SCHEMA two;
CREATE TYPE one.kind AS ENUM ('a', 'b', 'c');
CREATE TYPE two.kind AS ENUM ('x', 'b', 'a');
CREATE TABLE one.items (id one.kind, text text, vector vector(8), PRIMARY KEY (id) INCLUDE (text));
CREATE TABLE two.items (id two.kind, text text PRIMARY KEY, vector vector(8));
CREATE TABLE one.langchain_pg_collection (uuid text, name text);
CREATE TABLE two.langchain_pg_collection (uuid text, name text);
CREATE TABLE two.embeddings (id text PRIMARY KEY, document text, collection_id uuid, cmetadata jsonb, vector vector(8));
INSERT INTO one.items VALUES ('a', 'one a', '[1,0,0,0,0,0,0,0]'), ('b', 'one b', '[1,1,0,0,0,0,0,0]');
INSERT INTO one.items VALUES ('c', 'one c', '[1,2,0,0,0,0,0,0]');
INSERT INTO two.items VALUES ('x', 'two x', '[1,0,0,0,0,0,0,0]'), ('a', 'two a', '[1,1,0,0,0,0,0,0]');
INSERT INTO one.langchain_pg_collection VALUES ('0', 'wrong'), ('1', 'wrong as well');
INSERT INTO two.langchain_pg_collection VALUES ('2', 'first'), ('3', 'second');
INSERT INTO two.embeddings VALUES ('a', 'moon', '5a0b4b52-15f5-4e31-9a1f-3f7e37b1f6d1', '{}', '[1,0,0,0,0,0,0,0]');
"""


def test_tables_of_one_name_in_several_schemas(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read with its own key, whose type may be of its schema, and with its own list of collections."""
    monkeypatch.setattr("retrieval_core.adapters.stores.postgres.table._PAGE", 1)
    query = SearchRequest(vector=np.eye(DIMENSION, dtype=np.float32)[0], limit=5)

    async def work(store: Any) -> tuple[list[str], list[str]]:
        return [one.chunk_id for one in await store.search(query)], await store.document_ids()

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        connection.execute(SCHEMAS)
        try:
            assert use(postgres.url, work, table="one.items") == (["a", "b", "c"], ["a", "b", "c"])
            assert use(postgres.url, work, table="two.items") == (["two x", "two a"], ["two a", "two x"])
            path = {"search_path": "two, one, public"}
            assert use(postgres.url, work, table="items", session=path) == (["two x", "two a"], ["two a", "two x"])
            path = {"search_path": "one, two, public"}
            given: dict[str, Any] = {"table": "embeddings", "fields": "langchain", "session": path}
            advice = use(postgres.url, lambda store: store.probe(), **given)
            assert 'rows = { collection_id = "2" }  # "first"' in advice
            assert "wrong" not in advice
        finally:
            connection.execute("DROP SCHEMA one CASCADE; DROP SCHEMA two CASCADE")


@pytest.mark.parametrize("index", ["", "hnsw", "ivfflat"])
def test_vectors_of_zeros_are_left_out(index: str, postgres: PostgresServer) -> None:
    """They have no cosine; however many there are, the others are found."""
    query = SearchRequest(vector=np.eye(DIMENSION, dtype=np.float32)[0], limit=5)
    with made(postgres) as connection:
        rows = (
            f'INSERT INTO {TABLE} ("id", "Body %%", "vector %%") SELECT g, \'Rule\', '
            "CASE WHEN g > 3 THEN array_fill(0, ARRAY[8]) ELSE ARRAY[1, g, 0, 0, 0, 0, 0, 0] END::vector(8) "
            "FROM generate_series(1, 50) AS g"
        )
        connection.execute(rows.replace("%%", "%").encode())
        if index:
            connection.execute(
                f'CREATE INDEX near ON {TABLE} USING {index} ("vector %%" vector_cosine_ops)'.replace(
                    "%%", "%"
                ).encode()
            )
        found = use(postgres.url, lambda store: store.search(query), fields=fields())
        key = FetchRequest(chunk_ids=("9",))
        assert set(use(postgres.url, lambda store: store.fetch(key), fields=fields()).chunks) == {"9"}
    assert [one.chunk_id for one in found] == ["1", "2", "3"]
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert all(0 < one.score <= 1 for one in found)
