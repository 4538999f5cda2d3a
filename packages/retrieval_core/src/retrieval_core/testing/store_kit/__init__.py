"""The conformance tests of stores, for pytest.

Subclass :class:`StoreConformance` in a test module, or :class:`CataloguedStoreConformance` for a store that remembers
its sources, and say how to open one::

    class TestMyStore(StoreConformance):
        async def open_store(self, folder):
            return MyStore(folder / "index", embedder_id=EMBEDDER_ID, dimension=DIMENSION)

Each test opens an empty store in a new folder and closes it. Needed besides the library: pytest and hypothesis.
"""

from retrieval_core.testing.store_kit.base import DIMENSION, EMBEDDER_ID
from retrieval_core.testing.store_kit.catalog import CatalogTests, CountTests, ListTests
from retrieval_core.testing.store_kit.fetching import FetchTests
from retrieval_core.testing.store_kit.fields import FieldTests
from retrieval_core.testing.store_kit.filtering import FilterTests
from retrieval_core.testing.store_kit.hostile import HostileInputTests
from retrieval_core.testing.store_kit.late_vectors import LateVectorTests
from retrieval_core.testing.store_kit.running import RunningTests, VersionTests
from retrieval_core.testing.store_kit.searching import DenseSearchTests, LexicalSearchTests, SearchTests
from retrieval_core.testing.store_kit.writing import WriteTests

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
    ListTests,
    RunningTests,
    VersionTests,
):
    """The promises of :class:`retrieval_core.ports.Store`."""


class CataloguedStoreConformance(StoreConformance, CatalogTests):
    """The promises of :class:`retrieval_core.ports.Store`."""
