"""The conformance tests of stores, for pytest.

Subclass :class:`StoreConformance` in a test module, and say how to open a store::

    class TestMyStore(StoreConformance):
        async def open_store(self, folder):
            return MyStore(folder / "index", embedder_id=EMBEDDER_ID, dimension=DIMENSION)

Each test opens an empty store in a new folder and closes it. Tests of optional methods are skipped if the store doesn't
have them. You need pytest and hypothesis. With blockbuster, methods that block the event loop fail too.
"""

from retrieval_core.testing.store_kit.base import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.catalog import CatalogTests, CountTests, FieldTests, ListTests
from retrieval_core.testing.store_kit.running import HostileInputTests, RunningTests, VersionTests
from retrieval_core.testing.store_kit.searching import (
    DenseSearchTests,
    FetchTests,
    FilterTests,
    LexicalSearchTests,
    SearchTests,
)
from retrieval_core.testing.store_kit.writing import LateVectorTests, WriteTests

__all__ = ["DIMENSION", "EMBEDDER_ID", "CataloguedStoreConformance", "StoreConformance"]


class StoreConformance(
    WriteTests,
    SearchTests,
    DenseSearchTests,
    LexicalSearchTests,
    FilterTests,
    CountTests,
    FieldTests,
    FetchTests,
    HostileInputTests,
    LateVectorTests,
    CatalogTests,
    ListTests,
    RunningTests,
    VersionTests,
):
    """The promises of :class:`retrieval_core.ports.Store`."""


class CataloguedStoreConformance(StoreConformance):
    """The former name of :class:`StoreConformance` for stores that remember their sources."""
