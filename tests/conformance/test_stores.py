"""Every store that comes with the library passes the kit."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from retrieval_core.adapters.stores.lancedb import LanceDBStore
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.qdrant import QdrantStore
from retrieval_core.adapters.stores.sqlite import SqliteStore
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID, StoreConformance
from retrieval_core.testing.store_kit.running import HostileInputTests
from retrieval_core.testing.store_kit.searching import DenseSearchTests, LexicalSearchTests
from retrieval_core.testing.store_kit.writing import LateVectorTests
from retrieval_core.text.analysis import Analyzer

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Store


class TestMemoryStore(StoreConformance):
    async def open_store(self, folder: Path) -> Store:
        return MemoryStore(embedder_id=EMBEDDER_ID, dimension=DIMENSION)


class TestSqliteStore(StoreConformance):
    async def open_store(self, folder: Path) -> Store:
        return SqliteStore(folder / "new folder" / "index?.db", embedder_id=EMBEDDER_ID, dimension=DIMENSION)


@pytest.mark.slow
class TestQuantizedSqliteStore(DenseSearchTests, LateVectorTests):
    async def open_store(self, folder: Path) -> Store:
        return SqliteStore(folder / "index.db", embedder_id=EMBEDDER_ID, dimension=DIMENSION, quantized=True)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lancedb") is None, reason="the extra 'lancedb' is not installed")
class TestLanceDBStore(StoreConformance):
    async def open_store(self, folder: Path) -> Store:
        return LanceDBStore(folder / "new folder" / "it's.lance", embedder_id=EMBEDDER_ID, dimension=DIMENSION)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("qdrant_client") is None, reason="the extra 'qdrant' is not installed")
class TestLocalQdrantStore(StoreConformance):
    """In the client's local mode; ``adapters/qdrant`` has the kit over the protocol, and on a server."""

    async def open_store(self, folder: Path) -> Store:
        return QdrantStore(path=":memory:", embedder_id=EMBEDDER_ID, dimension=DIMENSION)


class TestSqliteStoreWithNgrams(LexicalSearchTests, HostileInputTests):
    async def open_store(self, folder: Path) -> Store:
        analyzer = Analyzer(stop_words=["the"], word_ngrams=2)
        return SqliteStore(folder / "index.db", embedder_id=EMBEDDER_ID, dimension=DIMENSION, analyzer=analyzer)


class TestMemoryStoreWithNgrams(HostileInputTests):
    async def open_store(self, folder: Path) -> Store:
        analyzer = Analyzer("none", stop_words=[], word_ngrams=3)
        return MemoryStore(embedder_id=EMBEDDER_ID, dimension=DIMENSION, analyzer=analyzer)
