"""What the tests of the Pinecone store have in common."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from retrieval_core.adapters.stores.pinecone import PineconeStore
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID
from support.pinecone_service import KEY
from support.remote_stores import run_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from support.wire_server import WireServer


def store_of(server: WireServer, **options: Any) -> PineconeStore:
    """Return a store whose index the server keeps."""
    given: dict[str, Any] = {
        "api_key": SecretStr(KEY),
        "host": server.url,
        "embedder_id": EMBEDDER_ID,
        "dimension": DIMENSION,
    }
    return PineconeStore(**{**given, **options})


def run(server: WireServer, test: Callable[[PineconeStore], Awaitable[None]], **options: Any) -> None:
    """Run a test on a store, on an event loop of its own, and close the store."""
    run_store(partial(store_of, server, **options), test)
