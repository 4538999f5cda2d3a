"""Tests of the catalog of sources."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import InvalidParameterError, StoreError
from retrieval_core.ports import Change, SourceState
from retrieval_core.testing.filter_strategies import HOSTILE_TEXTS
from retrieval_core.testing.store_kit.base import StoreTestBase, chunk, document, on_new_store, put

if TYPE_CHECKING:
    from retrieval_core.ports import CataloguedStore


class CatalogTests(StoreTestBase):
    """Sources and their documents."""

    @on_new_store()
    async def test_sources_are_remembered(self, store: CataloguedStore) -> None:
        """States come back equal, the last one of a source counts, and removed sources are forgotten."""
        one, two = SourceState("one.csv", "h1", "r", 2), SourceState("two.md", "h2", "r", 1, "../else/two.md")
        assert dict(await store.sources()) == {}
        assert dict(await store.documents_of("one.csv")) == {}
        await store.upsert(Change(sources=(one, two)))
        assert dict(await store.sources()) == {"one.csv": one, "two.md": two}
        newer = SourceState("one.csv", "h3", "r2", 5)
        await store.upsert(Change(sources=(newer,), removed_sources=("two.md", "unknown")))
        assert dict(await store.sources()) == {"one.csv": newer}

    @on_new_store()
    async def test_documents_of_a_source(self, store: CataloguedStore) -> None:
        """Several documents may share a source; each is listed with its content hash until it is removed."""
        first, second = document("t#1", "one", "t"), document("t#2", "two", "t")
        await store.upsert(Change(documents=(first, second, document("o", "x", "other"))))
        assert dict(await store.documents_of("t")) == {"t#1": first.content_hash, "t#2": second.content_hash}
        await store.delete(["t#1"])
        assert dict(await store.documents_of("t")) == {"t#2": second.content_hash}
        assert dict(await store.documents_of("unknown")) == {}
        assert dict(await store.documents_of("\ud800")) == {}

    @on_new_store()
    async def test_sources_change_with_their_documents(self, store: CataloguedStore) -> None:
        """A refused change leaves the catalog as it was."""
        state = SourceState("s", "h", "r", 1)
        await put(store, chunk("a"), documents=(document("d", source="s"),), sources=(state,))
        with pytest.raises(InvalidParameterError):
            await put(store, chunk("b"), chunk("b"), sources=(SourceState("s", "h2", "r", 1),), removed_sources=("s",))
        assert dict(await store.sources()) == {"s": state}

    @on_new_store()
    async def test_the_file_of_a_removed_document_is_forgotten(self, store: CataloguedStore) -> None:
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

    @on_new_store()
    async def test_hostile_names(self, store: CataloguedStore) -> None:
        """Any text may name a source; the source of a document with an empty one is its id."""
        names = [text for text in HOSTILE_TEXTS if text]
        states = {text: SourceState(text, "h", "r", 1) for text in names}
        documents = tuple(document(f"d{text}", source=text) for text in names)
        await store.upsert(Change(documents=documents, sources=tuple(states.values())))
        assert dict(await store.sources()) == states
        for text in names:
            assert list(await store.documents_of(text)) == [f"d{text}"]

    @on_new_store()
    async def test_a_closed_catalog_refuses(self, store: CataloguedStore) -> None:
        """After closing, the catalog raises a store error."""
        await store.aclose()
        with pytest.raises(StoreError):
            await store.sources()
        with pytest.raises(StoreError):
            await store.documents_of("s")
