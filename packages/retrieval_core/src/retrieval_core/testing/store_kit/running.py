"""Tests of concurrency and closing."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import StoreError
from retrieval_core.ports import Change, ChunkRange, FetchRequest, SearchRequest
from retrieval_core.testing.store_kit.base import (
    StoreTestBase,
    by_text,
    by_vector,
    chunk,
    document,
    on_new_store,
    put,
    unit,
    units,
)

if TYPE_CHECKING:
    from retrieval_core.ports import Store

VERSIONS = 20
PARTS = 5
SEARCHERS = 8


class RunningTests(StoreTestBase):
    """Concurrent reads and writes, and closing."""

    @on_new_store()
    async def test_readers_see_each_document_whole(self, store: Store) -> None:
        """While a document is replaced again and again, every read sees all of one version and nothing of another."""

        def version(number: int) -> Change:
            chunks = tuple(
                chunk(f"v{number}p{part}", f"word version{number}", chunk_index=part) for part in range(PARTS)
            )
            return Change(chunks, units(PARTS, number), documents=(document("d", f"version{number}"),))

        await store.upsert(version(0))
        sides = (await store.describe()).sides
        done = asyncio.Event()

        async def write() -> None:
            for number in range(1, VERSIONS):
                await store.upsert(version(number))
            done.set()

        async def read() -> None:
            while not done.is_set():
                found = await store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, PARTS),)))
                _assert_one_version(list(found.chunks))
                if "lexical" in sides:
                    _assert_one_version(await by_text(store, "word"))
                if "dense" in sides:
                    _assert_one_version(await by_vector(store, unit(0)))

        async with asyncio.TaskGroup() as group:
            group.create_task(write())
            for _ in range(SEARCHERS):
                group.create_task(read())
        assert set((await store.fetch(FetchRequest(ranges=(ChunkRange("d", 0, PARTS),)))).chunks) == {
            f"v{VERSIONS - 1}p{part}" for part in range(PARTS)
        }

    @on_new_store()
    async def test_concurrent_writes_are_all_kept(self, store: Store) -> None:
        """Writers that do not wait for each other lose nothing."""
        await asyncio.gather(*(put(store, chunk(f"c{row}", document=f"d{row}")) for row in range(20)))
        assert (await store.describe()).chunks == 20

    @on_new_store()
    async def test_a_closed_store_refuses_everything(self, store: Store) -> None:
        """After closing, every call raises a store error; closing again is fine."""
        await put(store, chunk("a"))
        await store.aclose()
        await store.aclose()
        for call in (
            store.describe,
            lambda: store.upsert(Change()),
            lambda: store.delete(["d"]),
            lambda: store.search(SearchRequest(1, text="text")),
            lambda: store.fetch(FetchRequest()),
        ):
            with pytest.raises(StoreError):
                await call()

    @on_new_store()
    async def test_a_store_can_be_closed_unused(self, store: Store) -> None:
        """Closing a store that was never asked for anything is fine."""
        await store.aclose()


def _assert_one_version(names: list[str]) -> None:
    versions = {name.partition("p")[0] for name in names}
    assert len(versions) == 1, versions
    assert len(names) == PARTS
