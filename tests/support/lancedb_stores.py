"""Opening a LanceDB store for a test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from retrieval_core.adapters.stores.lancedb import LanceDBStore
from retrieval_core.testing.store_kit import DIMENSION, EMBEDDER_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def store_at(path: Path, **options: Any) -> LanceDBStore:
    """Return a store for the vectors of the kit."""
    return LanceDBStore(path, embedder_id=EMBEDDER_ID, dimension=DIMENSION, **options)


def run(path: Path, test: Callable[[LanceDBStore], Awaitable[None]], **options: Any) -> None:
    """Run a test on a store, on an event loop of its own, and close the store."""

    async def main() -> None:
        store = store_at(path, **options)
        try:
            await test(store)
        finally:
            await store.aclose()

    asyncio.run(main())
