"""The roles and schemas of tenants, made by the statements of the documentation."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

import psycopg
from psycopg.conninfo import conninfo_to_dict

from retrieval_core.adapters.stores.postgres import PostgresStore
from retrieval_core.errors import StoreError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.base import chunk, units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.postgres_server import PostgresServer

PAGE = Path(__file__).parents[3] / "docs" / "stores.md"
TENANTS = ("acme", "umbrella")


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """Make a database with two tenants, and yield an address without a user."""
    section = PAGE.read_text(encoding="utf-8").partition("### One schema and one role for each tenant")[2]
    once, of_tenant = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)[:2]
    host = conninfo_to_dict(postgres.url)["host"]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE tenants")
        with psycopg.connect(postgres.url, dbname="tenants", autocommit=True) as owner:
            for statements in (once, *(of_tenant.replace("acme", tenant) for tenant in TENANTS)):
                owner.execute(statements)
        yield f"@/tenants?host={host}"
        connection.execute("DROP DATABASE tenants (FORCE)")
        for tenant in TENANTS:
            connection.execute(f"DROP ROLE {tenant}; DROP ROLE {tenant}_reader".encode())


def opened(role: str, database: str, collection: str) -> PostgresStore:
    """Return the store of a role."""
    url = f"postgresql://{role}{database}"
    return PostgresStore(url=url, collection=collection, embedder_id=EMBEDDER_ID, dimension=DIMENSION)


def write(role: str, database: str, collection: str) -> None:
    """Index a chunk as a role."""

    async def run() -> None:
        async with aclosing(opened(role, database, collection)) as store:
            await store.upsert(Change((chunk("c", text=f"the disk of {collection}"),), units(1)))

    asyncio.run(run())


def search(role: str, database: str, collection: str, request: SearchRequest) -> set[str]:
    """Search as a role, and return the IDs of the results."""

    async def run() -> set[str]:
        async with aclosing(opened(role, database, collection)) as store:
            return {found.chunk_id for found in await store.search(request)}

    return asyncio.run(run())


def test_a_role_reads_only_its_schema(database: str) -> None:
    for tenant in TENANTS:
        write(tenant, database, tenant)
    for request in (SearchRequest(2, text="disk"), SearchRequest(2, vector=units(1)[0])):
        for role in ("acme", "acme_reader"):
            assert search(role, database, "acme", request) == {"c"}
            with pytest.raises(StoreError, match="permission denied"):
                search(role, database, "umbrella", request)
    for role, collection in (("acme_reader", "acme"), ("acme", "umbrella"), ("acme", "another")):
        with pytest.raises(StoreError, match="permission denied"):
            write(role, database, collection)
