"""Tests of fetching by id."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from retrieval_core.ports import ChunkRange, Fetched, FetchRequest
from retrieval_core.testing.store_kit.base import (
    StoreTestBase,
    chunk,
    document,
    need_operators,
    on_new_store,
    put,
    unit,
)
from retrieval_core.types import Section, Span
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from retrieval_core.ports import Store

MANY = 2500
"""More names than some databases take in one statement."""


class FetchTests(StoreTestBase):
    """One request reads everything that a query's hits need, and never more than the filter lets pass."""

    @on_new_store()
    async def test_ids_and_ranges(self, store: Store) -> None:
        """Chunks come by id and by position, first and last included, each once; vectors on request."""
        await put(store, *(chunk(f"{name}{row}", document=name, chunk_index=row) for name in "de" for row in range(5)))
        found = await store.fetch(
            FetchRequest(
                chunk_ids=("e4", "d1", "d1"),
                ranges=(ChunkRange("d", 1, 2), ChunkRange("d", 2, 3), ChunkRange("e", -5, 0)),
                with_vectors=True,
            )
        )
        assert set(found.chunks) == {"e4", "d1", "d2", "d3", "e0"} == set(found.vectors)
        np.testing.assert_allclose(found.vectors["e4"], unit(9), atol=1e-6)
        nothing = (ChunkRange("d", 3, 2), ChunkRange("d", 5, 10**30), ChunkRange("d", 10**30, 10**31))
        for part in (*nothing, ChunkRange("x", 0, 9)):
            assert not (await store.fetch(FetchRequest(ranges=(part,)))).chunks
        everything = await store.fetch(FetchRequest(ranges=(ChunkRange("d", -(10**30), 10**30),)))
        assert len(everything.chunks) == 5
        assert not everything.vectors

    @on_new_store()
    async def test_unknown_names_are_absent(self, store: Store) -> None:
        """Unknown ids are left out, and an empty request finds nothing."""
        await put(store, chunk("a"))
        found = await store.fetch(
            FetchRequest(("x", "a"), (ChunkRange("x", 0, 1),), ("x",), ("x", "d"), with_vectors=True)
        )
        assert (set(found.chunks), set(found.vectors)) == ({"a"}, {"a"})
        assert not found.sections
        assert not found.documents
        nothing = await store.fetch(FetchRequest())
        assert nothing == Fetched()

    @on_new_store()
    async def test_the_filter_guards_everything(self, store: Store) -> None:
        """A tenant sees its own chunks, and sections and documents only where one of their chunks is its own."""
        await put(
            store,
            chunk("d0", document="d", chunk_index=0, parent_id="shared", metadata={"tenant": "one"}),
            chunk("d1", document="d", chunk_index=1, parent_id="shared", metadata={"tenant": "two"}),
            chunk("e0", document="e", chunk_index=0, parent_id="foreign", metadata={"tenant": "two"}),
            documents=(document("d"), document("e"), document("empty")),
            sections=tuple(
                Section(name, owner, "section", (), Span(0, 1))
                for name, owner in (("shared", "d"), ("foreign", "e"), ("childless", "d"))
            ),
        )
        request = FetchRequest(
            chunk_ids=("d0", "d1"),
            ranges=(ChunkRange("d", 0, 9), ChunkRange("e", 0, 9)),
            section_ids=("shared", "foreign", "childless"),
            document_ids=("d", "e", "empty"),
            with_vectors=True,
        )
        free = await store.fetch(request)
        assert set(free.chunks) == {"d0", "d1", "e0"}
        assert set(free.sections) == {"shared", "foreign", "childless"}
        assert set(free.documents) == {"d", "e", "empty"}
        await need_operators(store, Eq("tenant", "one"))
        names = (request.chunk_ids, request.ranges, request.section_ids, request.document_ids)
        bound = await store.fetch(FetchRequest(*names, filter=Eq("tenant", "one"), with_vectors=True))
        assert set(bound.chunks) == {"d0"} == set(bound.vectors)
        assert set(bound.sections) == {"shared"}
        assert set(bound.documents) == {"d"}

    @on_new_store()
    async def test_many_names_at_once(self, store: Store) -> None:
        """A request may name thousands."""
        await put(store, *(chunk(f"c{row}", document=f"d{row}") for row in range(MANY)))
        wanted = tuple(f"c{row}" for row in range(-10, MANY))
        ranges = tuple(ChunkRange(f"d{row}", 0, 0) for row in range(0, MANY, 10))
        found = await store.fetch(FetchRequest(wanted, ranges, wanted, wanted, with_vectors=True))
        assert len(found.chunks) == MANY == len(found.vectors)
