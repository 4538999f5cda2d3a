"""Tests of named vectors over time: replaced, removed, and seen by other stores on the same index."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.errors import IndexFormatError, IndexNotFoundError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.store_kit.base import StoreTestBase, by_vector, on_new_store, unit
from retrieval_core.testing.store_kit.named_vectors import NAMES, QUERY, by_name, put_named, ranked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ports import Store
    from retrieval_core.types import Vector

EXAMPLES = 100


class NamedVectorHistoryTests(StoreTestBase):
    """What becomes of :attr:`Change.named_vectors`; skipped for a store that keeps none."""

    @on_new_store(NAMES)
    async def test_replaced_and_removed_chunks_lose_their_vectors(self, store: Store) -> None:
        """Nothing of a former chunk, document or section of the same id is found by what it was."""
        everything = {name: unit(row) for row, name in enumerate("abcd")}
        await put_named(store, list("abcd"), {"title": everything, "summary": everything}, with_documents=True)
        await put_named(store, ["a"], {"summary": {"a": unit(50)}})
        assert set(await by_name(store, "title", unit(QUERY))) == {"b", "c", "d"}
        assert await by_name(store, "summary", unit(50), 1) == ["a"]
        await put_named(store, ["b"], {}, with_documents=True)
        assert set(await by_name(store, "title", unit(QUERY))) == {"c", "d"}
        await store.delete(["d-c"])
        assert await by_name(store, "title", unit(QUERY)) == ["d"]
        await store.upsert(Change(removed_documents=("d-d",)))
        assert await by_name(store, "title", unit(QUERY)) == []
        assert await by_name(store, "summary", unit(QUERY)) == ["a"]

    def test_other_handles_see_every_write(self, tmp_path: Path) -> None:
        """Two stores on one index: what one writes, replaces and removes, the other finds so at once."""

        async def test(store: Store) -> None:
            await put_named(store, ["a", "b"], {"title": {"a": unit(1)}}, with_documents=True)
            other = await self.open_store_with_vectors(tmp_path, NAMES)
            try:
                await _need_the_same_index(other)
                assert await by_name(other, "title", unit(QUERY)) == ["a"]
                await put_named(store, ["b", "c"], {"title": {"b": unit(2), "c": unit(3)}}, with_documents=True)
                assert set(await by_name(other, "title", unit(QUERY))) == {"a", "b", "c"}
                await put_named(other, ["a"], {}, with_documents=True)
                await store.delete(["d-c"])
                for handle in (store, other):
                    assert await by_name(handle, "title", unit(QUERY)) == ["b"]
                    assert set(await by_vector(handle, unit(QUERY))) == {"a", "b"}
            finally:
                await other.aclose()

        self.run(tmp_path, test, NAMES)

    def test_other_names_are_refused(self, tmp_path: Path) -> None:
        """An index is opened with the names that it was built with; the error says both."""

        async def test(store: Store) -> None:
            await put_named(store, ["a"], {"title": {"a": unit(1)}})
            if (await store.describe()).manifest is None:
                pytest.skip("this store keeps no manifest")
            for names in ((), ("title",), (*NAMES, "body")):
                other = await self.open_store_with_vectors(tmp_path, names)
                try:
                    with pytest.raises(IndexFormatError, match="named vectors are 'summary', 'title'"):
                        await _need_the_same_index(other)
                finally:
                    await other.aclose()

        self.run(tmp_path, test, NAMES)

    def test_any_history_agrees_with_numpy(self, tmp_path: Path) -> None:
        """After any writes and removals, every name finds what a plain table of the vectors finds."""
        with asyncio.Runner() as runner:
            store = runner.run(self.open_store_with_vectors(tmp_path, NAMES))

            @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            @given(st.lists(_steps(), min_size=1, max_size=6), st.integers(1, 12))
            def check(steps: list[_Step], limit: int) -> None:
                runner.run(_check_history(store, steps, limit))

            try:
                check()
            finally:
                runner.run(store.aclose())


@dataclass(frozen=True, slots=True)
class _Step:
    """A write of some chunks, each with the seeds of its vectors by name, or the removal of their documents."""

    chunks: Mapping[str, Mapping[str, int]]
    replaces_documents: bool
    removes: bool


def _steps() -> st.SearchStrategy[_Step]:
    vectors = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 30))
    return st.builds(
        _Step, st.dictionaries(st.sampled_from("abcdefgh"), vectors, max_size=6), st.booleans(), st.booleans()
    )


async def _check_history(store: Store, steps: Sequence[_Step], limit: int) -> None:
    await store.upsert(Change(removed_documents=tuple(f"d-{name}" for name in "abcdefgh")))
    expected: dict[str | None, dict[str, Vector]] = {name: {} for name in (None, *NAMES)}
    for step in steps:
        added: dict[str | None, dict[str, Vector]] = {
            name: {key: unit(seeds[name]) for key, seeds in step.chunks.items() if name in seeds} for name in NAMES
        }
        added[None] = {key: unit(position) for position, key in enumerate(step.chunks)}
        if step.removes:
            await store.delete([f"d-{name}" for name in step.chunks])
        else:
            named = {name: added[name] for name in NAMES}
            await put_named(store, list(step.chunks), named, with_documents=step.replaces_documents)
        for name, vectors in expected.items():
            for key in step.chunks:
                vectors.pop(key, None)
            vectors.update({} if step.removes else added[name])
            found = await store.search(SearchRequest(limit, vector=unit(QUERY), vector_name=name))
            assert [item.chunk_id for item in found] == [key for key, _ in ranked(vectors, unit(QUERY))[:limit]]


async def _need_the_same_index(other: Store) -> None:
    """Skip the test for a store whose indexes are its own."""
    try:
        manifest = (await other.describe()).manifest
    except IndexNotFoundError:
        manifest = None
    if manifest is None:
        pytest.skip("this store shares no index with others")
