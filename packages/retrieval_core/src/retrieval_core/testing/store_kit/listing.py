"""Tests of listing documents."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import IndexNotFoundError, StoreError
from retrieval_core.ports import Change, ListsDocuments
from retrieval_core.testing.store_kit.base import StoreTestBase, chunk, document, on_new_store, put

if TYPE_CHECKING:
    from typing import Protocol

    from retrieval_core.ports import Store

    class _ListingStore(Store, ListsDocuments, Protocol): ...


class ListTests(StoreTestBase):
    """The promises of :class:`retrieval_core.ports.ListsDocuments`; skipped for a store that is none."""

    @on_new_store(needs=ListsDocuments)
    async def test_each_document_is_listed_once(self, store: _ListingStore) -> None:
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

    @on_new_store(needs=ListsDocuments)
    async def test_an_empty_store_lists_no_documents(self, store: _ListingStore) -> None:
        """Before the first write there is nothing to list; a store on a disk says that there is no index."""
        try:
            ids = await store.document_ids()
        except IndexNotFoundError:
            return
        assert list(ids) == []

    @on_new_store(needs=ListsDocuments)
    async def test_a_closed_store_lists_nothing(self, store: _ListingStore) -> None:
        """After closing, it raises a store error."""
        await store.aclose()
        with pytest.raises(StoreError):
            await store.document_ids()
