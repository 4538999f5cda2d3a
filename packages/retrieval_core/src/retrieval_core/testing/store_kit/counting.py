"""Tests of counting chunks, which must agree with what filters find."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.errors import StoreError, UnsupportedFilterError
from retrieval_core.ports import Change, CountsChunks, CountsTerms, TermCounts
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.store_kit.base import StoreTestBase, chunk, document, on_new_store, put, units
from retrieval_core.types.filters import OPERATORS, Eq, chunk_fields, matches

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Protocol

    from retrieval_core.ports import Store
    from retrieval_core.types.filters import Filter

    class _CountingStore(Store, CountsChunks, Protocol): ...

    class _TermStore(Store, CountsTerms, Protocol): ...


EXAMPLES = 100


class CountTests(StoreTestBase):
    """The promises of :class:`retrieval_core.ports.CountsChunks`; skipped for a store that is none."""

    @on_new_store(needs=CountsChunks)
    async def test_counts_change_with_each_write(self, store: _CountingStore) -> None:
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

    @on_new_store(needs=CountsTerms)
    async def test_terms_are_counted_among_the_chunks_that_pass(self, store: _TermStore) -> None:
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
            if not isinstance(store, CountsChunks):
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

    @on_new_store(needs=CountsChunks)
    async def test_operators_that_are_not_declared_are_not_counted(self, store: _CountingStore) -> None:
        """An operator that a store does not declare raises; it never counts as passed."""
        await put(store, chunk("a"))
        for name in sorted(OPERATORS - (await store.describe()).filter_operators):
            with pytest.raises(UnsupportedFilterError):
                await store.count_chunks(filter_strategies.example_of(name))

    @on_new_store(needs=CountsChunks)
    async def test_a_closed_store_does_not_count(self, store: _CountingStore) -> None:
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
