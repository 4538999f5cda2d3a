"""Tests of upserting and deleting, and of vectors that are added later."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retrieval_core.errors import (
    DimensionMismatchError,
    IndexNotFoundError,
    InvalidParameterError,
    NotYetEmbeddedError,
)
from retrieval_core.ports import Change, FetchRequest, SearchRequest
from retrieval_core.testing.store_kit.base import (
    EMBEDDER_ID,
    StoreTestBase,
    by_text,
    by_vector,
    chunk,
    chunk_of,
    document,
    ids,
    need,
    need_operators,
    on_new_store,
    put,
    unit,
    units,
)
from retrieval_core.types import Chunk, PageSpan, Section, Span
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Store
    from retrieval_core.types.filters import Filter


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
    lines=(4, 5),
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

CHUNKS = tuple(chunk(name, f"word {name}", document=name, metadata={"half": n % 2}) for n, name in enumerate("abcdef"))


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


class LateVectorTests(StoreTestBase):
    """The promises of :meth:`retrieval_core.ports.Store.add_vectors`; skipped for a store that does not follow it."""

    @on_new_store()
    async def test_a_store_that_adds_no_vectors_refuses_chunks_without(self, store: Store) -> None:
        """Nothing of the change is kept."""
        if "add_vectors" in store.capabilities:
            pytest.skip("this store adds vectors")
        with pytest.raises(InvalidParameterError):
            await write_words(store, *CHUNKS)
        with suppress(IndexNotFoundError):
            assert not (await store.fetch(FetchRequest(chunk_ids=tuple(each.id for each in CHUNKS)))).chunks

    @on_new_store(needs="add_vectors")
    async def test_words_are_found_before_the_vectors_come(self, store: Store) -> None:
        """Keyword search is complete, and vector search reports how many chunks have vectors. Filters apply to both."""
        assert await store.unembedded() == {}
        await put(store, *CHUNKS[:2])
        await write_words(store, *CHUNKS[2:])
        await need(store, "lexical")
        assert sorted(await by_text(store, "word")) == list("abcdef")
        assert await found(store) == (["a", "b"], (6, 2))
        assert await store.unembedded() == {each.id: each.content_hash for each in CHUNKS[2:]}
        assert list(await store.unembedded()) == list("cdef")
        info = await store.describe()
        assert (info.chunks, info.unembedded) == (6, 4)
        condition = Eq("half", 0)
        await need_operators(store, condition)
        assert sorted(await by_text(store, "word", condition=condition)) == list("ace")
        assert await found(store, condition) == (["a"], (3, 1))
        fetched = await store.fetch(FetchRequest(chunk_ids=("a", "c"), with_vectors=True))
        assert (sorted(fetched.chunks), list(fetched.vectors)) == (["a", "c"], ["a"])

    @on_new_store(needs="add_vectors")
    async def test_a_search_whose_chunks_all_have_vectors_is_complete(self, store: Store) -> None:
        """The filter says which chunks matter."""
        await put(store, *CHUNKS[::2])
        await write_words(store, *CHUNKS[1::2])
        await need_operators(store, Eq("half", 0))
        assert await found(store, Eq("half", 0)) == (list("ace"), None)
        assert await found(store, Eq("half", 1)) == ([], (3, 0))

    @on_new_store(needs="add_vectors")
    async def test_vectors_that_come_later_are_as_good(self, store: Store) -> None:
        """In whatever order they come: candidates and scores are those of chunks that were written with them."""
        await write_words(store, *CHUNKS)
        order = (3, 0, 5, 1, 4, 2)
        for count, row in enumerate(order, start=1):
            assert await store.add_vectors(Change((CHUNKS[row],), units(6)[row : row + 1])) == 1
            assert await found(store) == (
                sorted(CHUNKS[each].id for each in order[:count]),
                (6, count) if count < 6 else None,
            )
        for limit in (1, 3, 6):
            candidates = await store.search(SearchRequest(limit, vector=unit(9), with_vectors=True))
            scores = sorted(((float(unit(row) @ unit(9)), CHUNKS[row].id) for row in range(6)), reverse=True)
            assert ids(candidates) == [name for _, name in scores[:limit]]
            np.testing.assert_allclose([item.score for item in candidates], [s for s, _ in scores[:limit]], atol=1e-5)
            assert all(item.vector is not None for item in candidates)
        assert (await store.describe()).unembedded == 0
        assert await store.unembedded() == {}

    @on_new_store(needs="add_vectors")
    async def test_one_change_may_hold_both_kinds(self, store: Store) -> None:
        """Each row belongs to the next chunk that is not written without."""
        await store.upsert(Change(CHUNKS[:4], units(2), unembedded=frozenset({"a", "c"})))
        assert await found(store) == (["b", "d"], (4, 2))
        fetched = await store.fetch(FetchRequest(chunk_ids=("b", "d"), with_vectors=True))
        np.testing.assert_allclose([fetched.vectors[name] for name in "bd"], units(2), atol=1e-6)

    @on_new_store(needs="add_vectors")
    async def test_what_does_not_wait_is_passed_over(self, store: Store) -> None:
        """A chunk that is gone, was replaced by another text or has its vector; the others get theirs."""
        await write_words(store, *CHUNKS[:4])
        await store.delete(["a"])
        await put(store, CHUNKS[1], vectors=units(1, start=50))
        await write_words(store, replace(CHUNKS[2], text="other text", content_hash=""))
        assert await store.add_vectors(Change(CHUNKS[:4], units(4))) == 1
        assert await found(store) == (["b", "d"], (3, 2))
        kept = (await store.fetch(FetchRequest(chunk_ids=("b",), with_vectors=True))).vectors["b"]
        np.testing.assert_allclose(kept, unit(50), atol=1e-6)
        assert list(await store.unembedded()) == ["c"]

    @on_new_store(needs="add_vectors")
    async def test_removed_and_replaced_chunks_wait_no_more(self, store: Store) -> None:
        """By deleting their document, replacing it, and replacing them alone."""
        await write_words(store, *CHUNKS[:3], documents=tuple(document(name) for name in "abc"))
        await store.delete(["a"])
        await store.upsert(Change(removed_documents=("b",)))
        await put(store, CHUNKS[2])
        assert (await store.unembedded(), (await store.describe()).unembedded) == ({}, 0)
        assert await found(store) == (["c"], None)

    @on_new_store(needs="add_vectors")
    async def test_adding_vectors_is_a_write(self, store: Store) -> None:
        """It changes version and generation; where nothing waits, nothing is written."""
        if "version" not in store.capabilities:
            pytest.skip("this store does not tell its version")
        await write_words(store, *CHUNKS[:2])
        seen = [await store.version()]
        for expected in (1, 0):
            assert await store.add_vectors(Change(CHUNKS[:1], units(1))) == expected
            seen.append(await store.version())
        assert len(set(seen)) == 2
        assert seen[1] == seen[2]

    @on_new_store(needs="add_vectors")
    async def test_vectors_that_do_not_fit_what_waits_are_refused(self, store: Store) -> None:
        """Vectors of another dimension, too few of them, and ids of no chunk; nothing changes."""
        await write_words(store, *CHUNKS[:2])
        with pytest.raises(DimensionMismatchError):
            await store.add_vectors(Change(CHUNKS[:1], np.ones((1, 3), dtype=np.float32)))
        for wrong in (Change(CHUNKS[:2], units(1)), Change(CHUNKS[:2])):
            with pytest.raises(InvalidParameterError):
                await store.add_vectors(wrong)
        for wrong in (
            Change(CHUNKS[2:4], units(2), unembedded=frozenset({"c"})),
            Change(CHUNKS[2:4], unembedded=frozenset({"c"})),
            Change(CHUNKS[2:4], unembedded=frozenset({"c", "d", "nowhere"})),
        ):
            with pytest.raises(InvalidParameterError):
                await store.upsert(wrong)
        assert await found(store) == ([], (2, 0))

    def test_another_reader_notices(self, tmp_path: Path) -> None:
        """One that has searched already finds what gets its vector later, whoever writes it."""

        async def test() -> None:
            reader = await self.open_store(tmp_path)
            if "add_vectors" not in reader.capabilities:
                pytest.skip("this store adds no vectors")
            writer = await self.open_store(tmp_path)
            assert "add_vectors" in writer.capabilities
            await write_words(writer, *CHUNKS)
            try:
                assert (await reader.describe()).chunks
            except (IndexNotFoundError, AssertionError):
                pytest.skip("this store keeps no index in the folder")
            assert await found(reader) == ([], (6, 0))
            await writer.add_vectors(Change(CHUNKS[1:3], units(2, start=1)))
            assert await found(reader) == (["b", "c"], (6, 2))
            await writer.delete(["b"])
            await writer.add_vectors(Change(CHUNKS, units(6)))
            assert await found(reader) == (list("acdef"), None)
            scores = sorted(((float(unit(row) @ unit(9)), CHUNKS[row].id) for row in (0, 2, 3, 4, 5)), reverse=True)
            assert await by_vector(reader, unit(9)) == [name for _, name in scores]
            await reader.aclose()
            await writer.aclose()

        asyncio.run(test())


async def write_words(store: Store, *chunks: Chunk, **rest: object) -> None:
    """Write chunks without their vectors."""
    await store.upsert(Change(chunks=chunks, unembedded=frozenset(each.id for each in chunks), **rest))  # pyright: ignore[reportArgumentType]


async def found(store: Store, condition: Filter | None = None) -> tuple[list[str], tuple[int, int] | None]:
    """Search by vector: return the ids found, sorted; and of how many chunks how many have one, where some lack it."""
    try:
        return sorted(ids(await store.search(SearchRequest(100, vector=unit(0), filter=condition)))), None
    except NotYetEmbeddedError as error:
        return sorted(ids(error.found)), (error.details["chunks"], error.details["embedded"])
