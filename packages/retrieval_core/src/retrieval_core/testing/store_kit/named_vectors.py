"""Tests of named vectors; skipped for a store that keeps none."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.errors import DimensionMismatchError, IndexFormatError, IndexNotFoundError, InvalidParameterError
from retrieval_core.ports import Change, SearchRequest
from retrieval_core.testing.store_kit.base import (
    StoreTestBase,
    by_vector,
    chunk,
    document,
    ids,
    need_operators,
    on_new_store,
    unit,
    units,
)
from retrieval_core.types.filters import Eq

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ports import Candidate, Store
    from retrieval_core.types import Vector
    from retrieval_core.types.filters import Filter

NAMES = ("title", "summary")
QUERY = 1000
"""Seed of the query vectors."""
EXAMPLES = 100
"""Histories that hypothesis makes."""


class NamedVectorTests(StoreTestBase):
    """The promises about :attr:`Change.named_vectors` and :attr:`SearchRequest.vector_name`."""

    @on_new_store(NAMES)
    async def test_each_name_is_a_search_of_its_own(self, store: Store) -> None:
        """Order and scores are those of the cosines with the vectors of that name; chunks without one are not found."""
        titles = {f"c{row}": unit(100 + row) * 2 for row in range(0, 40, 2)}
        summaries = {f"c{row}": unit(200 + row) for row in range(0, 40, 3)}
        await put_named(store, [f"c{row}" for row in range(40)], {"title": titles, "summary": summaries})
        for name, vectors in (("title", titles), ("summary", summaries)):
            expected = ranked(vectors, unit(QUERY))
            for limit in (1, 5, len(vectors), 100):
                found = await store.search(SearchRequest(limit, vector=unit(QUERY) * 3, vector_name=name))
                assert [item.chunk_id for item in found] == [key for key, _ in expected[:limit]]
                np.testing.assert_allclose([item.score for item in found], [s for _, s in expected[:limit]], atol=1e-5)
                assert all(-1 <= item.score <= 1 for item in found)
        passages = {f"c{row}": unit(row) for row in range(40)}
        assert await by_vector(store, unit(QUERY)) == [key for key, _ in ranked(passages, unit(QUERY))]

    @on_new_store(NAMES)
    async def test_the_index_says_its_names(self, store: Store) -> None:
        """The manifest has them in alphabetical order, where there is a manifest."""
        await put_named(store, ["a"], {})
        manifest = (await store.describe()).manifest
        assert manifest is None or manifest.vectors == tuple(sorted(NAMES))
        assert await by_name(store, "title", unit(QUERY)) == []

    @on_new_store(NAMES)
    async def test_candidates_carry_the_vector_of_the_passage(self, store: Store) -> None:
        """A candidate's vector is that of its passage, whichever were searched: diversity compares passages."""
        await put_named(store, ["a", "b"], {"title": {"b": unit(7)}})
        request = SearchRequest(5, vector=unit(7), vector_name="title", with_vectors=True)
        (found,) = await store.search(request)
        assert found.vector is not None
        np.testing.assert_allclose(found.vector, unit(1), atol=1e-6)

    @on_new_store(NAMES)
    async def test_filters_apply_before_the_limit_of_a_name(self, store: Store) -> None:
        """The best one that passes is found, however many others are better."""
        names = [f"c{row:02}" for row in range(30)]
        # Those that do not pass are all better.
        vectors = {name: unit(row) + row % 2 * 9 * unit(QUERY) for row, name in enumerate(names)}
        chunks = tuple(chunk(name, metadata={"even": row % 2 == 0}) for row, name in enumerate(names))
        await store.upsert(Change(chunks, units(30), named_vectors={"title": vectors}))
        condition = Eq("even", True)
        await need_operators(store, condition)
        passing = {name: vector for row, (name, vector) in enumerate(vectors.items()) if row % 2 == 0}
        expected = [key for key, _ in ranked(passing, unit(QUERY))]
        for limit in (1, 4, 30):
            assert await by_name(store, "title", unit(QUERY), limit, condition) == expected[:limit]

    @on_new_store(NAMES)
    async def test_equal_cosines_of_a_name_are_ordered_by_id(self, store: Store) -> None:
        """Many chunks share a title: their ties come in the order of the ids, also where the limit cuts through."""
        names = [f"c{number:02}" for number in range(30)]
        await put_named(store, [*names[1::2], *reversed(names[::2])], {"title": dict.fromkeys(names, unit(1))})
        for limit in (1, 10, 30):
            assert await by_name(store, "title", unit(QUERY), limit) == names[:limit]

    @on_new_store(NAMES)
    async def test_what_does_not_fit_is_refused(self, store: Store) -> None:
        """Unknown names, vectors of no chunk, of another length or not finite raise, and nothing changes."""
        await put_named(store, ["a"], {"title": {"a": unit(0)}})
        wrong: list[tuple[Mapping[str, Mapping[str, Vector]], type[Exception]]] = [
            ({"nope": {"b": unit(0)}}, InvalidParameterError),
            ({"title": {"other": unit(0)}}, InvalidParameterError),
            ({"title": {"b": units(1)[0, :-1]}}, DimensionMismatchError),
            ({"title": {"b": units(1)}}, DimensionMismatchError),
        ]
        for named, error in wrong:
            with pytest.raises(error):
                await put_named(store, ["b"], named)
        for request, error in (
            (SearchRequest(5, vector=unit(0), vector_name="nope"), InvalidParameterError),
            (SearchRequest(5, vector=unit(0), vector_name="title' OR 1=1 --"), InvalidParameterError),
            (SearchRequest(5, text="text", vector_name="title"), InvalidParameterError),
            (SearchRequest(5, vector=unit(0)[:-1], vector_name="title"), DimensionMismatchError),
        ):
            with pytest.raises(error):
                await store.search(request)
        assert await by_vector(store, unit(0)) == ["a"]
        assert await by_name(store, "title", unit(0)) == ["a"]

    def test_an_index_without_names_takes_none(self, tmp_path: Path) -> None:
        """A store that was opened without names refuses named vectors in writes and in searches."""
        named, plain = _folders(tmp_path, "named", "plain")

        async def main() -> None:
            await (await self.open_store_with_vectors(named, NAMES)).aclose()  # skips where it must
            store = await self.open_store(plain)
            try:
                await put_named(store, ["a"], {})
                with pytest.raises(InvalidParameterError):
                    await put_named(store, ["b"], {"title": {"b": unit(0)}})
                with pytest.raises(InvalidParameterError):
                    await store.search(SearchRequest(5, vector=unit(0), vector_name="title"))
                assert await by_vector(store, unit(0)) == ["a"]
            finally:
                await store.aclose()

        asyncio.run(main())

    @pytest.mark.parametrize(
        "names", [("Title",), ("a b",), ("",), ("1st",), ("a", "a"), tuple(map("v{}".format, range(9)))]
    )
    def test_names_are_identifiers(self, tmp_path: Path, names: Sequence[str]) -> None:
        """Other names, the same one twice and more than eight are refused before anything is opened."""
        right, wrong = _folders(tmp_path, "right", "wrong")

        async def main() -> None:
            await (await self.open_store_with_vectors(right, NAMES)).aclose()
            with pytest.raises(InvalidParameterError):
                await self.open_store_with_vectors(wrong, names)

        asyncio.run(main())

    @on_new_store(NAMES)
    async def test_replaced_and_removed_chunks_lose_their_vectors(self, store: Store) -> None:
        """A chunk that was replaced or removed is not found by its former vectors."""
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


async def put_named(
    store: Store,
    names: Sequence[str],
    named: Mapping[str, Mapping[str, Vector]],
    *,
    with_documents: bool = False,
) -> None:
    """Write chunks, each of a separate document, with vectors by their position."""
    chunks = tuple(chunk(name, document=f"d-{name}") for name in names)
    documents = tuple(document(f"d-{name}") for name in names) if with_documents else ()
    await store.upsert(Change(chunks, units(len(chunks)), named_vectors=named, documents=documents))


async def by_name(
    store: Store, name: str, vector: Vector, limit: int = 100, condition: Filter | None = None
) -> list[str]:
    """Search the vectors of a name, and return the ids found."""
    return ids(await store.search(SearchRequest(limit, vector=vector, vector_name=name, filter=condition)))


def ranked(vectors: Mapping[str, Vector], query: Vector) -> list[tuple[str, float]]:
    """Return the cosines of some vectors with a query, computed in double precision, best first and then by id."""

    def cosine(vector: Vector) -> float:
        wide = vector.astype(np.float64)
        return float(wide @ query.astype(np.float64) / np.linalg.norm(wide) / np.linalg.norm(query.astype(np.float64)))

    return sorted(((key, cosine(vector)) for key, vector in vectors.items()), key=lambda item: (-item[1], item[0]))


def _folders(parent: Path, *names: str) -> list[Path]:
    folders = [parent / name for name in names]
    for folder in folders:
        folder.mkdir()
    return folders


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
            _check_ranking(found, dict(ranked(vectors, unit(QUERY))), limit)


def _check_ranking(found: Sequence[Candidate], cosines: Mapping[str, float], limit: int) -> None:
    """The best by their cosines, equal scores by id; a last digit may depend on where in memory a vector lies."""
    assert [item.score for item in found] == pytest.approx(list(cosines.values())[:limit], abs=1e-6)
    assert [item.score for item in found] == pytest.approx([cosines[item.chunk_id] for item in found], abs=1e-6)
    assert len({item.chunk_id for item in found}) == len(found)
    assert list(found) == sorted(found, key=lambda item: (-item.score, item.chunk_id))


async def _need_the_same_index(other: Store) -> None:
    """Skip the test for a store whose indexes are its own."""
    try:
        manifest = (await other.describe()).manifest
    except IndexNotFoundError:
        manifest = None
    if manifest is None:
        pytest.skip("this store shares no index with others")
