"""The PostgreSQL store passes the kit on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("psycopg", reason="the extra 'postgres' is not installed")

from retrieval_core.testing.store_kit import StoreConformance

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Store
    from support.postgres_server import PostgresServer


@pytest.mark.slow
class TestPostgresStore(StoreConformance):
    """A folder of the kit is a schema."""

    server: PostgresServer

    @pytest.fixture(autouse=True)
    def _server(self, postgres: PostgresServer) -> None:
        type(self).server = postgres

    async def open_store(self, folder: Path) -> Store:
        return self.server.store(folder)

    @pytest.mark.skip(reason="the index is not in the folder that is put back")
    def test_an_index_that_is_put_back_is_noticed(self) -> None:  # type: ignore[override]
        pass
