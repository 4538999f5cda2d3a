"""The Qdrant store passes the kit on a real server; not run unless ``QDRANT_URL`` names one."""

from __future__ import annotations

import os
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")

from pydantic import SecretStr

from retrieval_core.adapters.stores.qdrant import QdrantStore
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID, StoreConformance
from support.remote_stores import HasNoTransactions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ports import Store

URL = os.environ.get("QDRANT_URL", "")
KEY = os.environ.get("QDRANT_API_KEY", "")
pytestmark = [
    pytest.mark.qdrant_server,
    pytest.mark.skipif(not URL, reason="not run: QDRANT_URL names no server"),
    pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection"),
]


class TestQdrantServer(HasNoTransactions, StoreConformance):
    """Each folder of the kit is a collection."""

    async def open_store(self, folder: Path) -> Store:
        return self._store(folder)

    def _store(self, folder: Path, **options: Any) -> QdrantStore:
        collection = f"{self.prefix}{folder.name}"[:255]
        self.collections.add(collection)
        return QdrantStore(
            url=URL,
            api_key=SecretStr(KEY) if KEY else None,
            collection=collection,
            embedder_id=EMBEDDER_ID,
            dimension=DIMENSION,
            **options,
        )

    @pytest.fixture(autouse=True)
    def _cleared(self) -> Iterator[None]:
        from qdrant_client import QdrantClient

        self.prefix, self.collections = f"retrieval-test-{token_hex(4)}-", set[str]()
        yield
        client = QdrantClient(url=URL, api_key=KEY or None, check_compatibility=False)
        for collection in self.collections:
            client.delete_collection(collection)
        client.close()

    @pytest.mark.skip(reason="an index at a server is no folder that could be copied")
    def test_two_copies_have_two_versions(self, tmp_path: Path) -> None: ...

    @pytest.mark.skip(reason="an index at a server is no folder that could be put back")
    def test_an_index_that_is_put_back_is_noticed(self, tmp_path: Path, writes: int = 0) -> None: ...  # noqa: PT028
