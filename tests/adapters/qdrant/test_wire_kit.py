"""The Qdrant store passes the kit over Qdrant's REST protocol, with the vendor's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")

from retrieval_core.testing.store_kit import StoreConformance
from support.qdrant_service import QdrantService
from support.qdrant_support import store_of
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ports import Store

pytestmark = [pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection"), pytest.mark.slow]


class TestQdrantOverTheWire(StoreConformance):
    """Each folder of the kit is a collection of one server."""

    async def open_store(self, folder: Path) -> Store:
        return store_of(self.server, collection=folder.name)

    @pytest.fixture(autouse=True)
    def _served(self) -> Iterator[None]:
        self.service = QdrantService()
        with WireServer(self.service) as self.server:
            yield

    @pytest.mark.skip(reason="an index at a server is no folder that could be copied")
    def test_two_copies_have_two_versions(self, tmp_path: Path) -> None: ...

    @pytest.mark.skip(reason="an index at a server is no folder that could be put back")
    def test_an_index_that_is_put_back_is_noticed(self, tmp_path: Path, writes: int = 0) -> None: ...  # noqa: PT028
