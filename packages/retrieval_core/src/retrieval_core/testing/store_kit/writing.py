"""Tests of upserting and deleting."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import DimensionMismatchError, InvalidParameterError
from retrieval_core.ports import Change, FetchRequest
from retrieval_core.testing.store_kit.base import (
    EMBEDDER_ID,
    StoreTestBase,
    chunk,
    chunk_of,
    document,
    on_new_store,
    put,
    units,
)
from retrieval_core.types import Chunk, PageSpan, Section, Span

if TYPE_CHECKING:
    from retrieval_core.ports import Store

FULL = Chunk(
    id="d.pdf#1",
    document_id="d.pdf",
    text="The passage.\n\tSecond line. ",
    chunk_index=1,
    total_chunks=3,
    page_span=PageSpan(2, 4),
    section_path=("Part I", "", "Chapter > 2"),
    span=Span(10, 37),
    parent_id="d.pdf#s1",
    row_range=(3, 5),
    item_range=(1, 2),
    title="Title",
    source="https://example.org/d.pdf?x=1#y",
    timestamp=datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    embedding_model=EMBEDDER_ID,
    metadata={
        "number": 3,
        "float": 1.0,
        "tiny": 5e-324,
        "large": 2**53,
        "yes": True,
        "none": None,
        "list": [1, "1", True, None, {"deep": []}],
        "object": {"a.b": {"c": "d"}},
        "": "empty key",
    },
)
"""A chunk with every field set."""


class WriteTests(StoreTestBase):
    """Changes are written as a whole or not at all."""

    @on_new_store()
    async def test_chunks_come_back_equal(self, store: Store) -> None:
        """Every field of a chunk survives, with its type."""
        bare = chunk("bare", "")
        await put(store, FULL, bare)
        found = await chunk_of(store, FULL.id)
        assert found == FULL
        assert repr(found.metadata) == repr(FULL.metadata)
        assert await chunk_of(store, "bare") == bare

    @on_new_store()
    async def test_documents_and_sections_come_back_equal(self, store: Store) -> None:
        """Every field of documents and sections survives."""
        whole = document(
            "d", "Whole text\r\n" * 3, title="T", metadata={"k": [1, {"x": None}]}, timestamp=datetime.now(UTC)
        )
        page = Section("d#p", "d", "page", (), Span(0, 5), PageSpan(1, 2))
        part = Section("d#s", "d", "section", ("A", "B"), Span(5, 9))
        await store.upsert(Change(documents=(whole,), sections=(page, part)))
        found = await store.fetch(FetchRequest(document_ids=("d",), section_ids=("d#p", "d#s")))
        assert dict(found.documents) == {"d": whole}
        assert dict(found.sections) == {"d#p": page, "d#s": part}

    @on_new_store()
    async def test_a_document_is_replaced_as_a_whole(self, store: Store) -> None:
        """The former chunks and sections of a document go when it is written again, and no others."""
        old, new = Section("old", "d", "page", (), Span(0, 1)), Section("new", "d", "page", (), Span(0, 1))
        first = chunk("d#0", "first"), chunk("d#1", "second"), chunk("e#0", "other", document="e")
        await put(store, *first, documents=(document("d", "before"),), sections=(old,))
        await put(store, chunk("d#0", "third"), documents=(document("d", "after"),), sections=(new,))
        found = await store.fetch(
            FetchRequest(
                chunk_ids=("d#0", "d#1", "e#0"), section_ids=("old", "new"), document_ids=("d",), with_vectors=True
            )
        )
        assert {name: item.text for name, item in found.chunks.items()} == {"d#0": "third", "e#0": "other"}
        assert set(found.sections) == {"new"}
        assert set(found.vectors) == {"d#0", "e#0"}
        assert found.documents["d"].text == "after"

    @on_new_store()
    async def test_a_chunk_without_its_document_is_added_or_replaced(self, store: Store) -> None:
        """A chunk whose document is not part of the change replaces the one with its id, and leaves its siblings."""
        await put(store, chunk("a", "one", chunk_index=0), chunk("b", "two", chunk_index=1))
        await put(store, chunk("b", "three", chunk_index=1), chunk("c", "four", chunk_index=2))
        found = await store.fetch(FetchRequest(chunk_ids=("a", "b", "c")))
        assert {name: item.text for name, item in found.chunks.items()} == {"a": "one", "b": "three", "c": "four"}
        assert (await store.describe()).chunks == 3

    @on_new_store()
    async def test_removing_takes_everything_of_a_document(self, store: Store) -> None:
        """Deleted and removed documents take their chunks and sections with them; others stay."""
        section = Section("s", "d", "page", (), Span(0, 1))
        names = FetchRequest(chunk_ids=("d#0", "d#1", "e#0"), section_ids=("s",), document_ids=("d", "e"))
        both = chunk("d#0"), chunk("d#1"), chunk("e#0", document="e")
        texts = document("d"), document("e")
        await put(store, *both, documents=texts, sections=(section,))
        assert await store.delete(["d", "unknown"]) == 2
        found = await store.fetch(names)
        assert (set(found.chunks), set(found.sections), set(found.documents)) == ({"e#0"}, set(), {"e"})
        assert await store.delete(["d"]) == 0
        await store.upsert(Change(removed_documents=("e",)))
        found = await store.fetch(names)
        assert (set(found.chunks), set(found.documents)) == (set(), set())

    @on_new_store()
    async def test_a_change_that_fails_changes_nothing(self, store: Store) -> None:
        """A change with a fault in its last part is refused before its first part is applied."""
        await put(store, chunk("d#0", "before"), documents=(document("d", "before"),))
        before = await store.describe()
        good = chunk("d#0", "after")
        wide = units(2)[:, :-1].copy()
        faults: list[tuple[type[Exception], Change]] = [
            (DimensionMismatchError, Change((good, chunk("x")), wide)),
            (InvalidParameterError, Change((good, chunk("x")), units(1))),
            (InvalidParameterError, Change((good, chunk("x")), None)),
            (InvalidParameterError, Change((good, good), units(2))),
        ]
        for error, change in faults:
            removing = Change(
                change.chunks, change.vectors, documents=(document("d", "after"),), removed_documents=("d",)
            )
            with pytest.raises(error):
                await store.upsert(removing)
        found = await store.fetch(FetchRequest(chunk_ids=("d#0", "x"), document_ids=("d",)))
        assert [item.text for item in found.chunks.values()] == ["before"]
        assert found.documents["d"].text == "before"
        assert await store.describe() == before

    @on_new_store()
    async def test_the_store_describes_itself(self, store: Store) -> None:
        """Counts, embedder and dimension are reported, and the generation grows with each write."""
        await put(store, chunk("d#0"), chunk("d#1"), chunk("e#0", document="e"), documents=(document("d"),))
        first = await store.describe()
        await store.delete(["d"])
        second = await store.describe()
        assert (first.documents, first.chunks, second.documents, second.chunks) == (2, 3, 1, 1)
        if first.manifest is not None:
            assert (first.manifest.embedder_id, first.manifest.dimension) == (EMBEDDER_ID, units(1).shape[1])
            assert second.manifest == first.manifest
        if first.generation is not None and second.generation is not None:
            assert second.generation > first.generation
