"""The Qdrant store passes the kit on the client's local mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")

from retrieval_core.adapters.stores.qdrant import QdrantStore
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID, CataloguedStoreConformance

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ports import CataloguedStore


class TestLocalQdrant(CataloguedStoreConformance):
    async def open_store(self, folder: Path) -> CataloguedStore:
        return QdrantStore(path=":memory:", embedder_id=EMBEDDER_ID, dimension=DIMENSION)

    async def open_store_with_vectors(self, folder: Path, names: Sequence[str]) -> CataloguedStore:
        return QdrantStore(path=":memory:", embedder_id=EMBEDDER_ID, dimension=DIMENSION, vectors=names)
