"""Every store that comes with the library passes the kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.stores.memory import MemoryStore
from retrieval_core.stores.sqlite import SqliteStore
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID, CataloguedStoreConformance

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import CataloguedStore


class TestMemoryStore(CataloguedStoreConformance):
    async def open_store(self, folder: Path) -> CataloguedStore:
        return MemoryStore(embedder_id=EMBEDDER_ID, dimension=DIMENSION)


class TestSqliteStore(CataloguedStoreConformance):
    async def open_store(self, folder: Path) -> CataloguedStore:
        return SqliteStore(folder / "new folder" / "index?.db", embedder_id=EMBEDDER_ID, dimension=DIMENSION)
