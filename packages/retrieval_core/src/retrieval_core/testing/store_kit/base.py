"""The base of the store tests: opening a store, and helpers that fill it."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from retrieval_core.errors import IndexNotFoundError
from retrieval_core.ports import Change, FetchRequest, SearchRequest, as_store
from retrieval_core.testing.blocking import blocking_calls_fail
from retrieval_core.types import Chunk, Document, content_hash
from retrieval_core.types.filters import operators_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from retrieval_core.ports import Candidate, Capability, Side, Store
    from retrieval_core.types import Matrix, Vector
    from retrieval_core.types.filters import Filter

EMBEDDER_ID = "conformance-kit"
"""The embedder id of the tests' vectors."""
DIMENSION = 7
"""Components of the tests' vectors; an odd number, so that rows are not aligned in memory."""


class StoreTestBase:
    """The methods that a user of the kit overrides, and the runner of the tests."""

    async def open_store(self, folder: Path) -> Store:
        """Return a new, empty store for vectors of :data:`EMBEDDER_ID` with :data:`DIMENSION` components.

        Args:
            folder: An empty folder for the store's files.
        """
        raise NotImplementedError

    def run(self, folder: Path, test: Callable[[Any], Awaitable[None]]) -> None:
        """Run a test on a new store, on a new event loop, and close the store.

        A method that blocks the event loop fails, if BlockBuster is installed.

        Args:
            folder: An empty folder for the store's files.
            test: Given the store.
        """

        async def main() -> None:
            store = as_store(await self.open_store(folder))
            with blocking_calls_fail(["retrieval_core", type(store).__module__]):
                try:
                    await test(store)
                finally:
                    await store.aclose()

        asyncio.run(main())


def on_new_store(
    *, needs: Capability | None = None
) -> Callable[[Callable[[Any, Any], Awaitable[None]]], Callable[[Any, Path], None]]:
    """Make a test of a coroutine method: :meth:`StoreTestBase.run` gives it a new store, and closes that.

    Args:
        needs: The test is skipped for a store that does not have this optional method.
    """

    def decorate(test: Callable[[Any, Any], Awaitable[None]]) -> Callable[[Any, Path], None]:
        @wraps(test)
        def run(self: StoreTestBase, tmp_path: Path) -> None:
            async def with_store(store: Store) -> None:
                if needs is not None and needs not in store.capabilities:
                    pytest.skip(f"this store has no {needs}()")
                await test(self, store)

            self.run(tmp_path, with_store)

        del run.__wrapped__  # pytest would take the test's own arguments for names of fixtures
        return run

    return decorate


def unit(seed: int) -> Vector:
    """Return a vector of length 1 that depends on the seed only."""
    vector = np.random.default_rng(seed).normal(size=DIMENSION)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def units(count: int, start: int = 0) -> Matrix:
    """Return vectors of length 1, shape ``(count, DIMENSION)``."""
    return np.array([unit(start + seed) for seed in range(count)], dtype=np.float32).reshape(count, DIMENSION)


def chunk(name: str, text: str = "text", document: str = "d", **fields: Any) -> Chunk:
    """Return a chunk."""
    return Chunk(name, document, text, **fields)


def document(name: str, text: str = "text", source: str = "source", **fields: Any) -> Document:
    """Return a document."""
    return Document(name, text, source, content_hash(text), **fields)


async def put(store: Store, *chunks: Chunk, vectors: Matrix | None = None, **rest: Any) -> None:
    """Write chunks, by default with vectors made from their position."""
    vectors = units(len(chunks)) if vectors is None else vectors
    await store.upsert(Change(chunks=chunks, vectors=vectors, **rest))


async def need(store: Store, side: Side) -> None:
    """Skip the test for a store that lacks a side; the store must have been written to."""
    if side not in (await store.describe()).sides:
        pytest.skip(f"this store has no {side} search")


async def need_operators(store: Store, *conditions: Filter) -> None:
    """Skip the test for a store that lacks an operator of these filters; the store must have been written to."""
    missing = frozenset[str]().union(*map(operators_of, conditions)) - (await store.describe()).filter_operators
    if missing:
        pytest.skip(f"this store lacks {', '.join(sorted(missing))}")


async def by_text(store: Store, text: str, limit: int = 100, condition: Filter | None = None) -> list[str]:
    """Return the ids that keyword search finds; an index without a write has none."""
    try:
        return ids(await store.search(SearchRequest(limit, text=text, filter=condition)))
    except IndexNotFoundError:
        return []


async def by_vector(store: Store, vector: Vector, limit: int = 100, condition: Filter | None = None) -> list[str]:
    """Search by vector and return the ids found; an index that was never written to has none."""
    try:
        return ids(await store.search(SearchRequest(limit, vector=vector, filter=condition)))
    except IndexNotFoundError:
        return []


async def chunk_of(store: Store, name: str) -> Chunk:
    """Return a chunk by its id."""
    return (await store.fetch(FetchRequest(chunk_ids=(name,)))).chunks[name]


def ids(candidates: Sequence[Candidate]) -> list[str]:
    """Return the ids of candidates, after checking that they come best first."""
    scores = [candidate.score for candidate in candidates]
    assert scores == sorted(scores, reverse=True), "candidates must come best first"
    return [candidate.chunk_id for candidate in candidates]
