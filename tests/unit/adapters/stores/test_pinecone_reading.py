"""How Pinecone is read in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from retrieval_core.adapters.stores.pinecone import reading
from retrieval_core.testing.store_kit import DIMENSION
from retrieval_core.testing.store_kit.base import chunk, put
from support.pinecone_service import PineconeService
from support.pinecone_support import run
from support.wire_server import WireServer

if TYPE_CHECKING:
    from retrieval_core.adapters.stores.pinecone import PineconeStore


def test_more_chunks_than_one_query_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents go as a whole, also where a query for them reaches the most that Pinecone returns."""
    monkeypatch.setattr(reading, "MOST_RESULTS", 50)

    async def test(store: PineconeStore) -> None:
        await put(store, *(chunk(f"d{row}", document="d", chunk_index=row) for row in range(120)))
        await put(store, *(chunk(f"e{row}", document=f"e{row % 3}", chunk_index=row) for row in range(90)))
        assert await store.delete(["d", "e0", "e1"]) == 180
        assert (await store.describe()).chunks == 30

    with WireServer(PineconeService(DIMENSION)) as server:
        run(server, test)
