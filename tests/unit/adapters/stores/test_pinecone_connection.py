"""Connections to Pinecone."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from pydantic import SecretStr

from retrieval_core.adapters.stores.pinecone import PineconeStore
from retrieval_core.adapters.stores.pinecone import connection as connection_module
from retrieval_core.errors import ServiceTimeoutError
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from support.pinecone_service import KEY, PineconeService
from support.pinecone_support import run
from support.wire_server import (
    Hang,
    WireServer,
)

pytestmark = pytest.mark.slow


def test_the_clients_own_time_out_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the client give up by itself, that is a time-out; its own limit is far beyond any deadline."""
    assert connection_module._A_DAY >= 86_400

    async def test(store: PineconeStore) -> None:
        await store.describe()
        server.fail(Hang())
        with pytest.raises(ServiceTimeoutError):
            await store._connection.call("describe_index_stats", timeout=1e-6)
        server.release()

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)


def test_each_event_loop_has_its_own_client() -> None:
    """A store may be used from one event loop after another, and is closed from the last."""
    with WireServer(PineconeService(DIMENSION)) as server:
        store = PineconeStore(api_key=SecretStr(KEY), host=server.url, embedder_id=EMBEDDER_ID, dimension=DIMENSION)
        for _ in range(2):
            with asyncio.Runner() as runner:
                runner.run(store.describe())
                runner.run(store._connection._loops[runner.get_loop()].index.close())

        async def last() -> None:
            await asyncio.gather(store.describe(), store.describe())
            assert len(store._connection._loops) == 1
            await store.aclose()
            await store.aclose()

        asyncio.run(last())
