"""Retries of the specification's searchers."""

from __future__ import annotations

import asyncio

import pytest

from retrieval_core.compat.pipeline import (
    ConnectionError,  # noqa: A004 - the file's name
    SearchConfig,
    VectorSearcher,
)
from retrieval_core.errors import ServiceConnectionError
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.pipelines import TroubledStore, filled

PHONES = tuple(
    Chunk(
        f"r{number}",
        "reviews",
        text,
        metadata={"product_name": name, "price": 100 * number, "rating": number},
    )
    for number, (name, text) in enumerate(
        (
            ("Acme One", "The battery lasts two days of heavy use."),
            ("Acme One", "The battery lasts three days of light use."),
            ("Tern Mini", "The battery lasts one day of use."),
            ("Osprey", "A camera for pictures at night."),
        ),
        start=1,
    )
)
QUESTION = "how long the battery lasts"


def a_store() -> TroubledStore:
    store = TroubledStore()
    filled(store, PHONES)
    return store


def embedded(text: str) -> list[float]:
    vector: list[float] = asyncio.run(FakeEmbedder().embed_query(text)).tolist()
    return vector


def test_a_search_that_cannot_reach_its_store() -> None:
    """It is tried again, and then raises the file's ConnectionError with its service."""
    store = a_store()
    store.failures["dense"] = ServiceConnectionError("no route to host", "pinecone")
    searcher = VectorSearcher(SearchConfig(), store)
    searcher._calls._clock = FakeClock()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ConnectionError, match="no route") as raised:
        searcher.search(embedded(QUESTION))
    assert raised.value.service == "pinecone"
    assert store.calls["dense"] == 4
