"""Tests of filters, with :func:`retrieval_core.types.filters.matches` as oracle."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.errors import UnsupportedFilterError
from retrieval_core.ports import Change, FetchRequest, SearchRequest
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.store_kit.base import (
    StoreTestBase,
    by_text,
    by_vector,
    chunk,
    need,
    need_operators,
    on_new_store,
    put,
    unit,
    units,
)
from retrieval_core.types import PageSpan
from retrieval_core.types.filters import OPERATORS, And, Eq, Exists, Gte, Lt, Not, Or, chunk_fields, matches

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ports import Store
    from retrieval_core.types.filters import Filter

EXAMPLES = 120
"""Cases that hypothesis makes, each with several chunks and filters."""


class FilterTests(StoreTestBase):
    """Filters agree with :func:`matches`, and operators that a store does not declare are refused."""

    def test_filters_agree_with_the_oracle(self, tmp_path: Path) -> None:
        """For any metadata and any filter, both searches and fetch return exactly the chunks that match."""
        with asyncio.Runner() as runner:
            store = runner.run(self.open_store(tmp_path))
            runner.run(put(store, chunk("c0")))
            operators = runner.run(store.describe()).filter_operators

            @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            @given(
                st.lists(filter_strategies.metadata(), min_size=1, max_size=6),
                st.lists(filter_strategies.filters(operators), min_size=1, max_size=4),
            )
            def check(metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
                runner.run(_check_filters(store, metadata, filters))

            try:
                check()
            finally:
                runner.run(store.aclose())

    @on_new_store()
    async def test_filters_apply_before_the_limit(self, store: Store) -> None:
        """The best that match come back, however many better ones do not."""
        chunks = [chunk(f"c{row:03}", "word " * (row % 5 + 1), metadata={"n": row}) for row in range(200)]
        await put(store, *chunks, vectors=units(200))
        conditions = (Gte("n", 197), Lt("n", 150), And(()), Or(()), Not(Eq("n", 3)))
        await need_operators(store, *conditions)
        for condition in conditions:
            wanted = {item.id for item in chunks if matches(condition, chunk_fields(item))}
            for limit in (1, 3, 200):
                sides = (await store.describe()).sides
                if "lexical" in sides:
                    everything = [name for name in await by_text(store, "word") if name in wanted]
                    full = [name for name in await by_text(store, "word", 200) if name in wanted]
                    assert everything == full[: len(everything)]
                    assert await by_text(store, "word", limit, condition) == full[:limit]
                if "dense" in sides:
                    full = [name for name in await by_vector(store, unit(999), 200) if name in wanted]
                    assert await by_vector(store, unit(999), limit, condition) == full[:limit]

    @on_new_store()
    async def test_filters_see_each_write(self, store: Store) -> None:
        """Chunks that are added, replaced and removed between searches with one filter are judged as they are now."""
        is_a = Eq("kind", "a")
        await put(store, *(chunk(f"c{row}", "word", f"d{row}", metadata={"kind": "ab"[row % 2]}) for row in range(6)))
        await need(store, "dense")
        await need_operators(store, is_a, Exists("new"))
        assert sorted(await by_vector(store, unit(1), condition=is_a)) == ["c0", "c2", "c4"]
        await put(store, chunk("c1", "word", "d1", metadata={"kind": "a"}), chunk("c6", "word", "d6"))
        assert sorted(await by_vector(store, unit(1), condition=is_a)) == ["c0", "c1", "c2", "c4"]
        await store.delete(["d0", "d4"])
        assert sorted(await by_vector(store, unit(1), condition=is_a)) == ["c1", "c2"]
        await put(store, chunk("c7", "word", "d7", metadata={"kind": ["b", "a"], "new": 1}))
        assert sorted(await by_vector(store, unit(1), condition=is_a)) == ["c1", "c2", "c7"]
        assert await by_vector(store, unit(1), condition=Exists("new")) == ["c7"]

    @on_new_store()
    async def test_operators_that_are_not_declared_are_refused(self, store: Store) -> None:
        """An operator that a store does not declare raises; it is never skipped."""
        await put(store, chunk("a"))
        info = await store.describe()
        assert info.filter_operators <= OPERATORS
        for name in sorted(OPERATORS - info.filter_operators):
            condition = filter_strategies.example_of(name)
            for side in info.sides:
                request = SearchRequest(5, filter=condition)
                request = replace(request, vector=unit(0)) if side == "dense" else replace(request, text="text")
                with pytest.raises(UnsupportedFilterError):
                    await store.search(request)


async def _check_filters(store: Store, metadata: list[dict[str, Any]], filters: list[Filter]) -> None:
    chunks = [
        chunk(
            f"c{number}",
            "word",
            document=f"d{number}",
            chunk_index=number,
            page_span=PageSpan(number, number + 1) if number else None,
            section_path=("a", "b")[:number],
            title="aB" if number else None,
            timestamp=datetime(2024, 1, number, tzinfo=UTC) if number else None,
            metadata=fields,
        )
        for number, fields in enumerate(metadata)
    ]
    gone = ("d", *(f"d{number}" for number in range(10)))
    await store.upsert(Change(tuple(chunks), units(len(chunks)), removed_documents=gone))
    sides = (await store.describe()).sides
    names = tuple(item.id for item in chunks)
    for condition in filters:
        wanted = [item.id for item in chunks if matches(condition, chunk_fields(item))]
        if "dense" in sides:
            assert sorted(await by_vector(store, unit(0), condition=condition)) == wanted
        if "lexical" in sides:
            assert await by_text(store, "word", condition=condition) == wanted
        assert sorted((await store.fetch(FetchRequest(names, filter=condition))).chunks) == wanted
