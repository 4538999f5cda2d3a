"""Servers that an administrator has set up in another way: read replicas, isolation levels, durability."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

import psycopg

from retrieval_core.adapters.stores.postgres import PostgresStore, session
from retrieval_core.errors import StoreError
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.base import by_text, chunk, put
from support.postgres_server import PostgresServer, skip_without_server

SEEING = """
CREATE TABLE SCHEMA.seen (level text);
CREATE FUNCTION SCHEMA.see() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO SCHEMA.seen VALUES (current_setting(''synchronous_commit'')); RETURN NEW; END';
CREATE TRIGGER seeing AFTER INSERT ON SCHEMA.chunks FOR EACH ROW EXECUTE FUNCTION SCHEMA.see()
"""
"""Notes with which durability a chunk is written."""


def opened(url: str, collection: str = "retrieval") -> PostgresStore:
    return PostgresStore(url=url, collection=collection, embedder_id=EMBEDDER_ID, dimension=DIMENSION)


def with_default(server: PostgresServer, name: str, value: str) -> str:
    """Return an address with another default for a parameter of PostgreSQL, as a role or a database may have it."""
    return f"{server.url}&options={quote(f'-c {name}={value}'.replace(' r', chr(92) + ' r'))}"


@pytest.mark.slow
def test_a_replica_that_refuses_to_listen_is_asked_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes no new connection, and sees what was written."""
    skip_without_server()
    connections: list[str] = []
    connect = psycopg.AsyncConnection.connect.__func__  # pyright: ignore[reportFunctionMemberAccess]
    now = 1000.0

    async def counted(kind: Any, *given: Any, **more: Any) -> Any:
        connections.append(more["host"])
        return await connect(kind, *given, **more)

    async def main(primary: PostgresServer, replica: PostgresServer) -> None:
        nonlocal now
        async with aclosing(opened(primary.url)) as store, aclosing(opened(replica.url)) as reader:
            for number in range(10):
                await put(store, chunk(f"c{number}"))
                await until_same(store, reader)
                assert len(await by_text(reader, "text", limit=20)) == number + 1
            at_replica = [each for each in connections if each in replica.url]
            assert len(at_replica) == 2  # for searches, and the refused one
            now += 11
            for _ in range(10):
                await reader.version()
            at_replica = [each for each in connections if each in replica.url]
            assert len(at_replica) == 3
            with pytest.raises(StoreError, match="read-only replica"):
                await put(reader, chunk("b"))

    async def until_same(store: PostgresStore, reader: PostgresStore) -> None:
        for _ in range(500):
            if await reader.version() == await store.version():
                return
            await asyncio.sleep(0.01)
        pytest.fail("the write does not arrive")

    with PostgresServer() as primary:
        asyncio.run(write_first(primary))
        with PostgresServer(primary) as replica:
            monkeypatch.setattr(session, "monotonic", lambda: now)
            monkeypatch.setattr(psycopg.AsyncConnection, "connect", classmethod(counted))
            asyncio.run(main(primary, replica))


async def write_first(primary: PostgresServer) -> None:
    async with aclosing(opened(primary.url)) as store:
        await put(store, chunk("c0"))


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_writers_wait_for_each_other_in_a_database_with_another_isolation_level(
    level: str, postgres: PostgresServer
) -> None:
    async def main(url: str) -> None:
        collection = f"isolation_{level.split(maxsplit=1)[0]}"
        async with aclosing(opened(url, collection)) as one, aclosing(opened(url, collection)) as other:
            await put(one, chunk("first"))
            names = [f"c{number}" for number in range(20)]
            await asyncio.gather(*(put((one, other)[at % 2], chunk(name)) for at, name in enumerate(names)))
            assert set(await by_text(one, "text", limit=50)) == {"first", *names}
            assert await other.delete([chunk("first").document_id])
            assert await by_text(one, "text") == []
            await one.optimize()

    asyncio.run(main(with_default(postgres, "default_transaction_isolation", level)))


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("off", "on"),
        ("on", "on"),
        ("local", "local"),
        ("remote_write", "remote_write"),
        ("remote_apply", "remote_apply"),
    ],
)
def test_a_write_is_as_durable_as_the_server_is_set_to_or_more(given: str, used: str, postgres: PostgresServer) -> None:
    """A write that was acknowledged is on the disk; whoever waits for replicas too still does."""

    async def main(url: str) -> None:
        async with aclosing(opened(url, collection)) as store:
            await put(store, chunk("a"))
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(SEEING.replace("SCHEMA", collection).encode())
                await put(store, chunk("b"))
                assert connection.execute(f"SELECT level FROM {collection}.seen".encode()).fetchall() == [(used,)]

    collection = f"durable_{given}"
    asyncio.run(main(with_default(postgres, "synchronous_commit", given)))
