"""Connections to Qdrant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")


from retrieval_core.adapters.stores.qdrant import QdrantStore
from retrieval_core.adapters.stores.qdrant import collection as connection_module
from retrieval_core.errors import (
    ServiceTimeoutError,
)
from retrieval_core.testing.store_kit.base import chunk, put
from support.qdrant_service import QdrantService
from support.qdrant_support import run, store_of
from support.wire_server import (
    Hang,
    WireServer,
)

pytestmark = [pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection"), pytest.mark.slow]


def test_the_clients_own_time_out_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the client give up by itself, that is a time-out; its own limit is far beyond any deadline."""
    assert connection_module._SILENCE_SECONDS >= 300
    monkeypatch.setattr(connection_module, "_SILENCE_SECONDS", 1)

    async def test(store: QdrantStore) -> None:
        connection: Any = store._connection
        client: Any = await connection.client()
        client._client.openapi_client.client._async_client.timeout = 1e-6
        server.fail(Hang())
        with pytest.raises(ServiceTimeoutError, match="did not answer in time"):
            await store.describe()

    with WireServer(QdrantService()) as server:
        run(server, test)


def test_each_event_loop_has_its_own_client() -> None:
    """A store may be used from one event loop after another, and is closed from the last."""
    with WireServer(QdrantService()) as server:
        store = store_of(server)
        for _ in range(2):
            with asyncio.Runner() as runner:
                assert runner.run(store.version()) is None
                runner.run(store._connection.aclose())

        async def last() -> None:
            await put(store, chunk("a"))
            await asyncio.gather(store.describe(), store.describe())
            await store.aclose()
            await store.aclose()

        asyncio.run(last())
