"""What the PostgreSQL store does when the server fails, refuses or is not what it should be."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

import psycopg

from retrieval_core.adapters.stores.postgres import PostgresStore, schema
from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    IndexBusyError,
    IndexFormatError,
    IndexNotFoundError,
    InvalidParameterError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
    StoreError,
)
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.base import by_text, chunk, document, put, unit
from support.killing import kills
from support.postgres_server import PostgresServer, skip_without_server

if TYPE_CHECKING:
    from pathlib import Path

    from psycopg import Connection


KILLS = kills(3)


def connect(server: PostgresServer) -> Connection[Any]:
    return psycopg.connect(server.url, autocommit=True)


async def until_waiting(connection: Connection[Any], store: PostgresStore, table: str, count: int) -> None:
    """Wait until so many transactions wait for a table."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = to_regclass(%s)"
    for _ in range(3000):
        if connection.execute(waiting, (f"{schema_of(store)}.{table}",)).fetchone() == (count,):
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"not {count} transactions wait for {table}")


def schema_of(store: PostgresStore) -> str:
    return store.location.split()[2]


@pytest.mark.parametrize(
    "url", ["", "http://localhost/x", "mysql://h/d", "postgresql://user:s3cret@host:port/d", "not an address s3cret"]
)
def test_an_address_that_is_none_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"store\.postgres\.url") as caught:
        PostgresStore(url=url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", 'x"; DROP SCHEMA public; --', "1st", "a.b", "x" * 49])
def test_a_name_that_names_no_schema_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot name a schema"):
        PostgresStore(url="postgresql://h/d", collection=name)


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    async def main() -> None:
        store = PostgresStore(url=f"postgresql://user:s3cret@/d?host={tmp_path}&connect_timeout=1")
        assert "s3cret" not in store.location
        with pytest.raises(ServiceConnectionError, match="Check that the server runs") as caught:
            await store.describe()
        assert "s3cret" not in str(caught.value)
        assert caught.value.can_be_retried
        await store.aclose()

    asyncio.run(main())


def test_a_refused_login_is_not_repeated(postgres: PostgresServer) -> None:
    async def main() -> None:
        for name in ("postgresql://nobody@/postgres", "postgresql://postgres@/nowhere"):
            store = PostgresStore(url=f"{name}?{postgres.url.partition('?')[2]}")
            with pytest.raises(ServiceError, match="Check user, password and database") as caught:
                await store.describe()
            assert not caught.value.can_be_retried
            await store.aclose()

    asyncio.run(main())


def test_a_server_without_room_for_another_connection_says_what_to_change(postgres: PostgresServer) -> None:
    async def main() -> None:
        with connect(postgres) as connection:
            connection.execute("CREATE ROLE crowd LOGIN CONNECTION LIMIT 0")
        store = PostgresStore(url=postgres.url.replace("postgres:@", "crowd@"))
        with pytest.raises(ServiceConnectionError, match=r"too many connections.*Increase max_connections") as caught:
            await store.describe()
        assert caught.value.can_be_retried
        await store.aclose()

    asyncio.run(main())


def test_a_schema_of_another_program_stays_as_it_is(postgres: PostgresServer, tmp_path: Path) -> None:
    """Whatever it has, a table with the name of ours too."""

    async def main(table: str) -> None:
        store = postgres.store(tmp_path / table)
        with connect(postgres) as connection:
            connection.execute(f"CREATE SCHEMA {schema_of(store)} CREATE TABLE {table} (id int)".encode())
            for call in (put(store, chunk("a")), store.describe(), by_text(store, "a")):
                with pytest.raises(IndexFormatError, match="another program"):
                    await call
            found = connection.execute(
                "SELECT count(*) FROM pg_tables WHERE schemaname = %s", (schema_of(store),)
            ).fetchone()
        assert found == (1,)
        await store.aclose()

    for table in ("invoices", "manifest"):
        asyncio.run(main(table))


def test_a_role_without_rights_is_told_what_it_needs(postgres: PostgresServer, tmp_path: Path) -> None:
    async def main() -> None:
        store = postgres.store(tmp_path)
        await put(store, chunk("a"))
        reader = PostgresStore(
            url=postgres.url.replace("postgres:@", "visitor@"),
            collection=schema_of(store),
            embedder_id=EMBEDDER_ID,
            dimension=DIMENSION,
        )
        with connect(postgres) as connection:
            connection.execute("CREATE ROLE visitor LOGIN")
            with pytest.raises(StoreError, match="Grant the role USAGE"):
                await reader.describe()
            for grant in ("USAGE ON SCHEMA", "SELECT ON ALL TABLES IN SCHEMA"):
                connection.execute(f"GRANT {grant} {schema_of(store)} TO visitor".encode())
            assert await by_text(reader, "text") == ["a"]
            with pytest.raises(StoreError, match="Grant the role"):
                await put(reader, chunk("b"))
        await reader.aclose()
        await store.aclose()

    asyncio.run(main())


def test_a_read_only_server_searches_and_says_where_to_write(postgres: PostgresServer, tmp_path: Path) -> None:
    async def main() -> None:
        store = postgres.store(tmp_path)
        await put(store, chunk("a"))
        url = f"{postgres.url}&options=-c%20default_transaction_read_only%3Don"
        replica = PostgresStore(url=url, collection=schema_of(store), embedder_id=EMBEDDER_ID, dimension=DIMENSION)
        assert await by_text(replica, "text") == ["a"]
        with pytest.raises(StoreError, match="read-only replica"):
            await put(replica, chunk("b"))
        await replica.aclose()
        await store.aclose()

    asyncio.run(main())


def test_a_database_without_pgvector_is_told(postgres: PostgresServer, tmp_path: Path) -> None:
    """A role that may not create the extension; keyword search needs none."""

    async def main() -> None:
        with connect(postgres) as connection:
            connection.execute("CREATE ROLE owner LOGIN")
            connection.execute("CREATE DATABASE bare OWNER owner")
        url = postgres.url.replace("postgres:@/postgres", "owner@/bare")
        store = PostgresStore(url=url, embedder_id=EMBEDDER_ID, dimension=DIMENSION)
        with pytest.raises(ConfigurationError, match="CREATE EXTENSION vector"):
            await put(store, chunk("a"))
        with pytest.raises(IndexNotFoundError):
            await store.describe()
        await store.aclose()
        words = PostgresStore(url=url)
        await words.upsert(Change((chunk("a"),)))
        assert await by_text(words, "text") == ["a"]
        await words.aclose()

    asyncio.run(main())


def test_vectors_of_another_dimension_are_refused(postgres: PostgresServer, tmp_path: Path) -> None:
    async def main() -> None:
        store, other = postgres.store(tmp_path), postgres.store(tmp_path, dimension=DIMENSION + 1)
        await put(store, chunk("a"))
        with pytest.raises(DimensionMismatchError):
            await other.describe()
        huge = postgres.store(tmp_path / "huge", dimension=schema.LARGEST_DIMENSION + 1)
        with pytest.raises(ConfigurationError, match="at most 16000 components"):
            await huge.upsert(Change(documents=(document("d"),)))
        for one in (store, other, huge):
            await one.aclose()

    asyncio.run(main())


def test_ids_that_no_index_can_hold_are_refused(postgres: PostgresServer, tmp_path: Path) -> None:
    async def main() -> None:
        store = postgres.store(tmp_path)
        with pytest.raises(InvalidParameterError, match="at most 2600 bytes"):
            await put(store, chunk("é" * 1301))
        await put(store, chunk("é" * 1300, metadata={"é" * 2000: "é" * 2000}))
        await store.aclose()

    asyncio.run(main())


def test_a_writer_waits_no_longer_than_it_should(postgres: PostgresServer, tmp_path: Path) -> None:
    """While another one writes, readers go on with what was there before."""

    async def main() -> None:
        store = postgres.store(tmp_path, busy_timeout=0.05)
        await put(store, chunk("a"))
        with connect(postgres) as connection, connection.transaction():
            connection.execute(f"UPDATE {schema_of(store)}.manifest SET generation = generation".encode())
            with pytest.raises(IndexBusyError, match="another process is writing"):
                await put(store, chunk("b"))
            assert await by_text(store, "text") == ["a"]
        await put(store, chunk("b"))
        assert await by_text(store, "text") == ["a", "b"]
        await store.aclose()

    asyncio.run(main())


def test_a_search_that_is_cancelled_ends_at_the_server(postgres: PostgresServer, tmp_path: Path) -> None:
    """So a query that is over its deadline costs nothing more, and leaves room for the next one."""

    async def main() -> None:
        store = postgres.store(tmp_path, pool_size=1)
        await put(store, chunk("a"))
        with connect(postgres) as connection:
            with connection.transaction():
                connection.execute(f"LOCK TABLE {schema_of(store)}.entries".encode())
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await store.search(SearchRequest(1, vector=unit(0)))
                await until_waiting(connection, store, "entries", 0)
            assert (await store.search(SearchRequest(1, vector=unit(0))))[0].chunk_id == "a"
        await store.aclose()

    asyncio.run(main())


def test_a_server_that_does_not_answer_costs_no_more_than_the_deadline(tmp_path: Path) -> None:
    """Neither a search nor a write waits for it to confirm that it stopped; afterwards all goes on."""
    skip_without_server()
    with PostgresServer() as server:

        async def main() -> None:
            store = server.store(tmp_path)
            await put(store, chunk("a"))
            server.send(signal.SIGSTOP)
            try:
                for call in (store.search(SearchRequest(1, vector=unit(0))), put(store, chunk("b")), store.version()):
                    task = asyncio.ensure_future(call)
                    await asyncio.sleep(0.05)
                    assert not task.done()
                    task.cancel()
                    turns = 0
                    while not task.done():
                        await asyncio.sleep(0)
                        turns += 1
                        assert turns < 1000, "it waits for the server"
                    assert task.cancelled()
            finally:
                server.send(signal.SIGCONT)
            assert await by_text(store, "text") in (["a"], ["a", "b"])
            await put(store, chunk("c"))
            assert (await store.find_damage()).is_none
            await store.aclose()

        asyncio.run(main())


def test_connections_that_are_cut_are_made_again(postgres: PostgresServer, tmp_path: Path) -> None:
    """Idle ones unnoticed; whoever waits for one is told that a retry can help, and the version is never an old one."""

    async def main() -> None:
        store, other = postgres.store(tmp_path), postgres.store(tmp_path)
        await put(store, chunk("a"))
        cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'retrieval-core'"
        with connect(postgres) as connection:
            for number in range(5):
                after = before = await store.version()
                connection.execute(cut)
                await put(other, chunk(f"b{number}"))
                assert await by_text(store, "text") == ["a", *(f"b{each}" for each in range(number + 1))]
                for _ in range(1000):
                    if (after := await store.version()) != before:
                        break
                    await asyncio.sleep(0.01)
                assert after == await other.version()
            with connection.transaction():
                connection.execute(f"LOCK TABLE {schema_of(store)}.entries".encode())
                searches = [asyncio.create_task(store.search(SearchRequest(1, vector=unit(0)))) for _ in range(3)]
                await until_waiting(connection, store, "entries", 3)
                connection.execute(cut)
                for outcome in await asyncio.gather(*searches, return_exceptions=True):
                    assert isinstance(outcome, ServiceConnectionError), outcome
                    assert outcome.can_be_retried
        assert (await store.find_damage()).is_none
        await store.aclose()
        await other.aclose()

    asyncio.run(main())


@pytest.mark.slow
def test_a_deadlock_with_another_program_can_be_retried(postgres: PostgresServer, tmp_path: Path) -> None:
    """Writers of an index wait for one another in one order; only somebody else can make a deadlock."""

    async def main() -> None:
        store = postgres.store(tmp_path)
        await put(store, chunk("a"))
        one = PostgresStore(
            url=f"{postgres.url}&options=-c%20deadlock_timeout%3D2s",
            collection=schema_of(store),
            embedder_id=EMBEDDER_ID,
            dimension=DIMENSION,
        )
        with connect(postgres) as connection:
            connection.execute("SET deadlock_timeout = '1min'")
            with connection.transaction():
                connection.execute(f"LOCK TABLE {schema_of(store)}.chunks".encode())
                writing = asyncio.create_task(put(one, chunk("b")))
                await until_waiting(connection, store, "chunks", 1)
                update = f"UPDATE {schema_of(store)}.manifest SET generation = generation"
                await asyncio.to_thread(connection.execute, update.encode())
            with pytest.raises(ServiceError, match="deadlock detected") as caught:
                await writing
        assert caught.value.can_be_retried
        assert await by_text(store, "text") == ["a"]
        await put(one, chunk("b"))
        assert await by_text(store, "text") == ["a", "b"]
        await one.aclose()
        await store.aclose()

    asyncio.run(main())


def run(*command: str) -> int:
    return subprocess.run(command, check=False).returncode


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_confirmed(postgres: PostgresServer) -> None:
    """A database on a file system of its own; once there is space, writing goes on."""
    folder = postgres.folder.parent / "small"
    folder.mkdir()
    size = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=777"]
    if not hasattr(os, "geteuid") or os.geteuid() or run(*size, "tmpfs", str(folder)):
        pytest.skip("only root can make a small file system")
    try:
        shutil.chown(folder, postgres.folder.owner())
        with connect(postgres) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'".encode())
            connection.execute("CREATE DATABASE small TABLESPACE small")
        url = postgres.url.replace("/postgres?", "/small?")

        async def main() -> None:
            store = PostgresStore(url=url, embedder_id=EMBEDDER_ID, dimension=DIMENSION)
            confirmed: list[str] = []
            rng = Random(0)

            async def fill() -> None:
                for number in range(100):
                    name = f"c{number}"
                    text = rng.randbytes(1_000_000).hex()
                    await put(store, chunk(name, "word", name), documents=(document(name, text=text),))
                    confirmed.append(name)

            with pytest.raises(StoreError, match="Nothing was written: make space"):
                await fill()
            assert sorted(await by_text(store, "word", limit=100)) == sorted(confirmed)
            assert (await store.find_damage()).is_none
            assert run("mount", "-o", "remount,size=64m", str(folder)) == 0
            await put(store, chunk("last", "word"))
            assert (await store.describe()).chunks == len(confirmed) + 1
            assert (await store.find_damage()).is_none
            await store.aclose()

        asyncio.run(main())
    finally:
        with connect(postgres) as connection:
            connection.execute("DROP DATABASE IF EXISTS small WITH (FORCE)")
            connection.execute("DROP TABLESPACE IF EXISTS small")
        assert run("umount", str(folder)) == 0


def test_a_pool_that_is_exhausted_says_so(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from retrieval_core.adapters.stores.postgres import session

    monkeypatch.setattr(session, "_CONNECT_SECONDS", 0.2)

    async def main() -> None:
        store = postgres.store(tmp_path, pool_size=1)
        await put(store, chunk("a"))
        with connect(postgres) as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {schema_of(store)}.entries".encode())
            first = asyncio.create_task(store.search(SearchRequest(1, vector=unit(0))))
            await asyncio.sleep(0.01)
            with pytest.raises(ServiceTimeoutError, match="all 1 connections are busy") as caught:
                await store.search(SearchRequest(1, vector=unit(0)))
            assert caught.value.can_be_retried
        assert (await first)[0].chunk_id == "a"
        await store.aclose()

    asyncio.run(main())


def test_a_newer_format_is_refused_and_an_older_one_is_converted(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        store = postgres.store(tmp_path)
        await put(store, chunk("a"))
        monkeypatch.setattr(schema, "MIGRATIONS", ("CREATE TABLE s.extra (a int); INSERT INTO s.extra VALUES (1)",))
        assert await by_text(store, "text") == ["a"]
        await put(store, chunk("b"))
        await put(store, chunk("c"))
        with connect(postgres) as connection:
            sql = f"SELECT format, (SELECT count(*) FROM {schema_of(store)}.extra) FROM {schema_of(store)}.manifest"
            assert connection.execute(sql.encode()).fetchone() == (2, 1)
        monkeypatch.setattr(schema, "MIGRATIONS", ())
        with pytest.raises(IndexFormatError, match="Upgrade retrieval-core"):
            await store.describe()
        await store.aclose()

    asyncio.run(main())


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
def test_a_server_that_is_killed_loses_nothing_it_confirmed() -> None:
    """Killed with -9 while several write and search; whoever is interrupted is told that a retry can help."""
    skip_without_server()
    with PostgresServer() as server:

        async def main() -> None:
            store = server.store("killed")
            confirmed: set[str] = set()
            wrote_enough = asyncio.Event()

            async def write(writer: int, turn: int) -> None:
                for number in range(200):
                    name = f"w{writer}t{turn}n{number}"
                    await put(store, chunk(name, "word", document=name), documents=(document(name),))
                    confirmed.add(name)
                    if number >= 5:
                        wrote_enough.set()

            async def search() -> None:
                while True:
                    await store.search(SearchRequest(5, vector=unit(0)))

            await put(store, chunk("first", "word"))
            confirmed.add("first")
            for turn in range(KILLS):
                tasks = [asyncio.create_task(work) for work in (write(0, turn), write(1, turn), search())]
                await wrote_enough.wait()
                wrote_enough.clear()
                server.kill()
                for outcome in await asyncio.gather(*tasks, return_exceptions=True):
                    assert isinstance(outcome, ServiceError), outcome
                    assert outcome.can_be_retried
                await asyncio.to_thread(server.start_again)
                found = await until_it_answers(store)
                assert confirmed <= found
                assert (await store.describe()).chunks == len(found)
                assert (await store.find_damage()).is_none
            await store.aclose()

        asyncio.run(main())


async def until_it_answers(store: PostgresStore) -> set[str]:
    for _ in range(100):
        with suppress(ServiceError):
            found = await store.search(SearchRequest(10_000, text="word"))
            return {item.chunk_id for item in found}
        await asyncio.sleep(0.1)
    pytest.fail("the server does not answer")


def test_damage_is_found_and_repaired(postgres: PostgresServer, tmp_path: Path) -> None:
    """Whatever is changed behind its back: texts, vectors, postings, fields and lost records."""

    async def main() -> None:
        store = postgres.store(tmp_path)
        names = [f"c{number}" for number in range(6)]
        await put(
            store,
            *(chunk(name, f"word {name}", document=name, metadata={"n": name}) for name in names),
            documents=tuple(document(name) for name in names),
        )
        assert (await store.find_damage()).is_none
        with connect(postgres) as connection:
            connection.execute(f"SET search_path = {schema_of(store)}, public".encode())
            for change in (
                "UPDATE chunks SET text = 'other' WHERE id = 'c0'",
                "UPDATE entries SET embedding = (SELECT embedding FROM entries WHERE id = 'c0') WHERE id = 'c1'",
                "UPDATE entries SET embedding = NULL WHERE id = 'c2'",
                "DELETE FROM postings WHERE term = 'c3'",
                "UPDATE entries SET fields = '{\"is\": {}}' WHERE id = 'c4'",
                "UPDATE documents SET title = 'other' WHERE id = 'c5'",
            ):
                connection.execute(change.encode())
        damage = await store.find_damage()
        assert {name: (*found.changed, *found.missing) for name, found in damage.chunks.items()} == {
            "c0": ("text",), "c1": ("vector",), "c2": ("vector",), "c3": ("postings",), "c4": ("fields",),
        }  # fmt: skip
        assert list(damage.documents) == ["c5"]
        assert set((await store.find_damage(["c1"])).chunks) == {"c1"}
        await store.repair()
        assert set((await store.find_damage()).chunks) == {"c0"}
        assert list(await store.unembedded()) == ["c1", "c2"]
        assert (await by_text(store, "c3"))[0] == "c3"
        await store.aclose()

    asyncio.run(main())
