"""Retries of a searcher that is used by itself."""

from __future__ import annotations

import pytest

from retrieval_core.compat.pipeline import (
    ConnectionError,  # noqa: A004 - the file's name
    SearchConfig,
    VectorSearcher,
)
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from support.pipelines import PHONES, TroubledStore, filled


def test_a_search_that_cannot_reach_its_store() -> None:
    """It is tried again, and then raises the file's ConnectionError with its service."""
    store = TroubledStore()
    filled(store, PHONES)
    store.failures["dense"] = ConnectionError("no route to host", "pinecone")
    searcher = VectorSearcher(SearchConfig(), store)
    searcher._calls._clock = FakeClock()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ConnectionError, match="no route") as raised:
        searcher.search(FakeEmbedder().vector("battery").tolist())
    assert (raised.value.service, store.calls["dense"]) == ("pinecone", 4)
