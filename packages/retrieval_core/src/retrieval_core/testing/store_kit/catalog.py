"""Tests of what a store lists and counts: sources, documents, chunks as filters find them, and fields."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, StoreError, UnsupportedFilterError
from retrieval_core.ports import Change, FieldInfo, SourceState, TermCounts
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.filter_strategies import HOSTILE_TEXTS
from retrieval_core.testing.store_kit.base import StoreTestBase, chunk, document, on_new_store, put, units
from retrieval_core.types import Chunk, PageSpan
from retrieval_core.types.filters import OPERATORS, Eq, chunk_fields, lookup, matches

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from retrieval_core.ports import Store
    from retrieval_core.types.filters import Filter


OF_EVERY_PASSAGE = chunk_fields(Chunk("", "", "")).keys()


class CatalogTests(StoreTestBase):
    """Sources and their documents; skipped for a store without :meth:`retrieval_core.ports.Store.sources`."""

    @on_new_store(needs="sources")
    async def test_sources_are_remembered(self, store: Store) -> None:
        """States come back equal, the last one of a source counts, and removed sources are forgotten."""
        one, two = SourceState("one.csv", "h1", "r", 2), SourceState("two.md", "h2", "r", 1, "../else/two.md")
        assert dict(await store.sources()) == {}
        assert dict(await store.documents_of("one.csv")) == {}
        await store.upsert(Change(sources=(one, two)))
        assert dict(await store.sources()) == {"one.csv": one, "two.md": two}
        newer = SourceState("one.csv", "h3", "r2", 5)
        await store.upsert(Change(sources=(newer,), removed_sources=("two.md", "unknown")))
        assert dict(await store.sources()) == {"one.csv": newer}

    @on_new_store(needs="sources")
    async def test_documents_of_a_source(self, store: Store) -> None:
        """Several documents may share a source; each is listed with its content hash until it is removed."""
        first, second = document("t#1", "one", "t"), document("t#2", "two", "t")
        await store.upsert(Change(documents=(first, second, document("o", "x", "other"))))
        assert dict(await store.documents_of("t")) == {"t#1": first.content_hash, "t#2": second.content_hash}
        await store.delete(["t#1"])
        assert dict(await store.documents_of("t")) == {"t#2": second.content_hash}
        assert dict(await store.documents_of("unknown")) == {}
        assert dict(await store.documents_of("\ud800")) == {}

    @on_new_store(needs="sources")
    async def test_sources_change_with_their_documents(self, store: Store) -> None:
        """A refused change leaves the catalog as it was."""
        state = SourceState("s", "h", "r", 1)
        await put(store, chunk("a"), documents=(document("d", source="s"),), sources=(state,))
        with pytest.raises(InvalidParameterError):
            await put(store, chunk("b"), chunk("b"), sources=(SourceState("s", "h2", "r", 1),), removed_sources=("s",))
        assert dict(await store.sources()) == {"s": state}

    @on_new_store(needs="sources")
    async def test_the_file_of_a_removed_document_is_forgotten(self, store: Store) -> None:
        """Deleting a document removes the state of its source, so that indexing the file again brings it back."""
        states = tuple(SourceState(name, "h", "r", 1) for name in ("s", "other"))
        for state in states:
            name = f"d-{state.source}"
            await put(
                store,
                chunk(f"c-{state.source}", document=name),
                documents=(document(name, source=state.source),),
                sources=(state,),
            )
        assert await store.delete(["unknown"]) == 0
        assert set(await store.sources()) == {"s", "other"}
        assert await store.delete(["d-s"]) == 1
        assert dict(await store.sources()) == {"other": states[1]}
        assert dict(await store.documents_of("s")) == {}

    @on_new_store(needs="sources")
    async def test_hostile_names(self, store: Store) -> None:
        """Any text may name a source; the source of a document with an empty one is its id."""
        names = [text for text in HOSTILE_TEXTS if text]
        states = {text: SourceState(text, "h", "r", 1) for text in names}
        documents = tuple(document(f"d{text}", source=text) for text in names)
        await store.upsert(Change(documents=documents, sources=tuple(states.values())))
        assert dict(await store.sources()) == states
        for text in names:
            assert list(await store.documents_of(text)) == [f"d{text}"]

    @on_new_store(needs="sources")
    async def test_a_closed_catalog_refuses(self, store: Store) -> None:
        """After closing, the catalog raises a store error."""
        await store.aclose()
        with pytest.raises(StoreError):
            await store.sources()
        with pytest.raises(StoreError):
            await store.documents_of("s")


class ListTests(StoreTestBase):
    """The promises of :meth:`retrieval_core.ports.Store.document_ids`; skipped for a store without it."""

    @on_new_store(needs="document_ids")
    async def test_each_document_is_listed_once(self, store: Store) -> None:
        """Documents with chunks, with chunks only and without chunks are listed; removed ones are not."""
        await put(
            store,
            *(chunk(f"a{number}", document="a", chunk_index=number) for number in range(3)),
            chunk("b", document="chunks only"),
            documents=(document("a"),),
        )
        await store.upsert(Change(documents=(document("empty"), document("\U0001f600 'é'/\"x\"#1"))))
        assert sorted(await store.document_ids()) == ["a", "chunks only", "empty", "\U0001f600 'é'/\"x\"#1"]
        await store.delete(["a", "empty"])
        assert sorted(await store.document_ids()) == ["chunks only", "\U0001f600 'é'/\"x\"#1"]

    @on_new_store(needs="document_ids")
    async def test_an_empty_store_lists_no_documents(self, store: Store) -> None:
        """Before the first write there is nothing to list; a store on a disk says that there is no index."""
        try:
            ids = await store.document_ids()
        except IndexNotFoundError:
            return
        assert list(ids) == []

    @on_new_store(needs="document_ids")
    async def test_a_closed_store_lists_nothing(self, store: Store) -> None:
        """After closing, it raises a store error."""
        await store.aclose()
        with pytest.raises(StoreError):
            await store.document_ids()


EXAMPLES = 100


class CountTests(StoreTestBase):
    """The promises of :meth:`retrieval_core.ports.Store.count_chunks`; skipped for a store without it."""

    @on_new_store(needs="count_chunks")
    async def test_counts_change_with_each_write(self, store: Store) -> None:
        """Before the first write there is nothing; what is added, replaced and removed counts as it is now."""
        is_a = Eq("kind", "a")
        assert await store.count_chunks(is_a) == 0
        rows = [chunk(f"c{row}", document=f"d{row}", metadata={"kind": "ab"[row % 2]}) for row in range(5)]
        await put(store, *rows, documents=tuple(document(f"d{row}") for row in range(5)))
        assert await store.count_chunks(is_a) == 3
        assert await store.count_chunks(Eq("kind", "b")) == 2
        assert await store.count_chunks(Eq("kind", "c")) == 0
        await put(store, chunk("c1", document="d1", metadata={"kind": "a"}), documents=(document("d1"),))
        assert await store.count_chunks(is_a) == 4
        await store.delete(["d0"])
        assert await store.count_chunks(is_a) == 3

    @on_new_store(needs="count_terms")
    async def test_terms_are_counted_among_the_chunks_that_pass(self, store: Store) -> None:
        """Each chunk counts once for a term, however often it has it; what was removed does not count."""
        assert await store.count_terms(["moon"]) == TermCounts(0, {"moon": 0})
        rows = [
            chunk(f"c{row}", "moon moon" if row < 3 else "sun", document=f"d{row}", metadata={"kind": "ab"[row % 2]})
            for row in range(5)
        ]
        await put(store, *rows, documents=tuple(document(f"d{row}") for row in range(5)))
        assert await store.count_terms(["moon", "sun", "star"]) == TermCounts(5, {"moon": 3, "sun": 2, "star": 0})
        assert await store.count_terms(["moon", "sun"], Eq("kind", "a")) == TermCounts(3, {"moon": 2, "sun": 1})
        await store.delete(["d0"])
        assert await store.count_terms(["moon"]) == TermCounts(4, {"moon": 2})

    def test_counts_agree_with_the_oracle(self, tmp_path: Path) -> None:
        """For any metadata and any filter, exactly the chunks that match are counted."""
        with asyncio.Runner() as runner:
            store = runner.run(self.open_store(tmp_path))
            if "count_chunks" not in store.capabilities:
                runner.run(store.aclose())
                pytest.skip("this store does not count chunks")
            runner.run(put(store, chunk("c0")))
            operators = runner.run(store.describe()).filter_operators

            @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            @given(
                st.lists(filter_strategies.metadata(), min_size=1, max_size=5),
                st.lists(filter_strategies.filters(operators), min_size=1, max_size=4),
            )
            def check(metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
                runner.run(_check_counts(store, metadata, filters))

            try:
                check()
            finally:
                runner.run(store.aclose())

    @on_new_store(needs="count_chunks")
    async def test_operators_that_are_not_declared_are_not_counted(self, store: Store) -> None:
        """An operator that a store does not declare raises; it never counts as passed."""
        await put(store, chunk("a"))
        for name in sorted(OPERATORS - (await store.describe()).filter_operators):
            with pytest.raises(UnsupportedFilterError):
                await store.count_chunks(filter_strategies.example_of(name))

    @on_new_store(needs="count_chunks")
    async def test_a_closed_store_does_not_count(self, store: Store) -> None:
        """After closing, it raises a store error."""
        await put(store, chunk("a"))
        await store.aclose()
        with pytest.raises(StoreError):
            await store.count_chunks(Eq("kind", "a"))


async def _check_counts(store: Any, metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
    chunks = tuple(
        chunk(f"c{row}", document=f"d{row}", metadata=fields, title="t" if row % 2 else None)
        for row, fields in enumerate(metadata)
    )
    documents = tuple(document(item.document_id) for item in chunks)
    await store.upsert(Change(chunks, units(len(chunks)), documents, removed_documents=("d",)))
    try:
        for condition in filters:
            wanted = sum(matches(condition, chunk_fields(item)) for item in chunks)
            assert await store.count_chunks(condition) == wanted, condition
    finally:
        await store.delete([item.id for item in documents])


class FieldTests(StoreTestBase):
    """The promises of :meth:`retrieval_core.ports.Store.fields`; skipped for a store without it."""

    @on_new_store(needs="fields")
    async def test_fields_have_their_types_and_counts(self, store: Store) -> None:
        """Nested fields have paths, nulls do not count, and a list has the types of its items."""
        metadata: list[dict[str, Any]] = [
            {"price": 1, "tags": ["a", 2], "specs": {"ram": 8, "maker": None}},
            {"price": "n/a", "tags": [], "specs": {"ram": 9.5}, "new": True},
            {"price": None, "tags": [{"a": 1}, None]},
        ]
        await put(store, *(chunk(f"c{row}", metadata=fields) for row, fields in enumerate(metadata)))
        fields = await store.fields(100)
        assert {name: info for name, info in fields.items() if name not in OF_EVERY_PASSAGE} == {
            "tags": FieldInfo(3, {"list of text": 1, "list of numbers": 1, "list": 2}),
            "price": FieldInfo(2, {"number": 1, "text": 1}),
            "specs": FieldInfo(2, {"object": 2}),
            "specs.ram": FieldInfo(2, {"number": 2}),
            "new": FieldInfo(1, {"boolean": 1}),
        }
        assert fields["document_id"] == FieldInfo(3, {"text": 3})
        assert fields["chunk_index"] == FieldInfo(3, {"number": 3})
        assert not {"page", "parent_id", "title"} & fields.keys()

    def test_fields_agree_with_what_filters_find(self, tmp_path: Path) -> None:
        """For any metadata each path is there exactly as often as a filter finds a value at it."""
        with asyncio.Runner() as runner:
            store = runner.run(self.open_store(tmp_path))
            if "fields" not in store.capabilities:
                runner.run(store.aclose())
                pytest.skip("this store has no catalogue of fields")

            @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            @given(st.lists(filter_strategies.metadata(), min_size=1, max_size=5))
            def check(metadata: list[dict[str, Any]]) -> None:
                runner.run(_check_fields(store, metadata))

            try:
                check()
            finally:
                runner.run(store.aclose())

    @on_new_store(needs="fields")
    async def test_fields_are_bounded_and_ordered(self, store: Store) -> None:
        """The fields that most passages have come first, then by name, and never more than were asked for."""
        rows = [{"all": 1, **({"half": 1, "also half": 1} if row % 2 else {}), f"own{row}": 1} for row in range(4)]
        await put(store, *(chunk(f"c{row}", metadata=fields) for row, fields in enumerate(rows)))
        everything = await store.fields(1000)
        counts = [(-info.passages, name) for name, info in everything.items()]
        assert counts == sorted(counts)
        for limit in (1, 5, len(everything), 1000):
            assert dict(await store.fields(limit)) == dict(list(everything.items())[:limit])
        with pytest.raises(InvalidParameterError):
            await store.fields(0)

    @on_new_store(needs="fields")
    async def test_fields_change_with_each_write(self, store: Store) -> None:
        """Before the first write there are none; those of chunks that are replaced or removed go."""
        assert dict(await store.fields(10)) == {}
        await put(store, chunk("a", document="d", metadata={"old": 1}), documents=(document("d"),))
        assert "old" in await store.fields(100)
        await put(store, chunk("a", document="d", metadata={"new": 1}), documents=(document("d"),))
        assert {"old", "new"} & (await store.fields(100)).keys() == {"new"}
        await store.delete(["d"])
        assert dict(await store.fields(100)) == {}

    @on_new_store(needs="fields")
    async def test_a_closed_catalogue_of_fields_refuses(self, store: Store) -> None:
        """After closing, it raises a store error."""
        await store.aclose()
        with pytest.raises(StoreError):
            await store.fields(10)


async def _check_fields(store: Any, metadata: list[dict[str, Any]]) -> None:
    chunks = tuple(
        chunk(
            f"c{number}",
            document=f"d{number}",
            page_span=PageSpan(1, 2) if number else None,
            section_path=("a", "b")[:number],
            title="t" if number else None,
            timestamp=datetime(2024, 1, 1, tzinfo=UTC) if number else None,
            metadata=fields,
        )
        for number, fields in enumerate(metadata)
    )
    gone = tuple(f"d{number}" for number in range(10))
    await store.upsert(Change(chunks, units(len(chunks)), removed_documents=gone))
    found: Mapping[str, FieldInfo] = await store.fields(1000)
    values = {
        path: [lookup(chunk_fields(item), path) for item in chunks] for path in (*found, *filter_strategies.PATHS)
    }
    counts = {path: sum(value is not None for value in of_path) for path, of_path in values.items()}
    assert {path: info.passages for path, info in found.items()} == {path: n for path, n in counts.items() if n}
    for path, info in found.items():
        scalars = [value for value in values[path] if value is not None and not isinstance(value, (tuple, dict))]
        of_type = [info.types.get(name, 0) for name in ("text", "number", "boolean")]
        assert sum(of_type) == len(scalars)
        assert info.types.get("text", 0) == sum(isinstance(value, str) for value in scalars)
        assert info.types.get("boolean", 0) == sum(isinstance(value, bool) for value in scalars)
        assert info.types.get("object", 0) == sum(isinstance(value, dict) for value in values[path])
