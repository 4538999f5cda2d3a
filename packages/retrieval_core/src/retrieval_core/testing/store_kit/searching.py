"""Tests of vector and keyword search, of reading by ids and ranges, and of filters."""

# ruff: noqa: S101 - these are tests

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.stores.base import StoreBase
from retrieval_core.errors import (
    DimensionMismatchError,
    EmbedderMismatchError,
    IndexFormatError,
    IndexNotFoundError,
    InvalidParameterError,
    UnsupportedFilterError,
)
from retrieval_core.ports import Change, ChunkRange, Fetched, FetchRequest, SearchRequest
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.store_kit.base import (
    DIMENSION,
    StoreTestBase,
    by_text,
    by_vector,
    chunk,
    document,
    need,
    need_operators,
    on_new_store,
    put,
    unit,
    units,
)
from retrieval_core.types import PageSpan, Section, Span
from retrieval_core.types.filters import OPERATORS, And, Eq, Exists, Gte, Lt, Not, Or, chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ports import Candidate, Store
    from retrieval_core.types.filters import Filter


QUERY = 1000
"""Seed of the query vectors."""

EXAMPLES = 120
"""Cases that hypothesis makes, each with several chunks and filters."""

MANY = 2500
"""More names than some databases take in one statement."""


class SearchTests(StoreTestBase):
    """Promises of both kinds of search."""

    @on_new_store()
    async def test_an_empty_store_finds_nothing(self, store: Store) -> None:
        """Before the first write, and after everything was removed, nothing is found and nothing breaks."""

        async def find() -> list[str]:
            words = await by_text(store, "word") if "lexical" in store.sides else []
            return words + (await by_vector(store, unit(QUERY)) if "dense" in store.sides else [])

        assert await find() == []
        assert await store.delete(["d"]) == 0
        await put(store, chunk("a", "word"))
        await store.delete(["d"])
        assert await find() == []
        assert not (await store.fetch(FetchRequest(chunk_ids=("a",), document_ids=("d",)))).chunks
        info = await store.describe()
        assert (info.documents, info.chunks) == (0, 0)

    @on_new_store()
    async def test_a_request_must_be_well_formed(self, store: Store) -> None:
        """Both or neither of vector and text are refused, and so is a limit below 1."""
        await put(store, chunk("a"))
        for request in (
            SearchRequest(5),
            SearchRequest(5, vector=unit(0), text="text"),
            SearchRequest(0, text="text"),
            SearchRequest(-1, vector=unit(0)),
        ):
            with pytest.raises(InvalidParameterError):
                await store.search(request)

    @on_new_store()
    async def test_candidates_carry_vectors_on_request(self, store: Store) -> None:
        """With ``with_vectors`` each candidate has its own vector, otherwise none need have one."""
        await put(store, chunk("a", "word"), chunk("b", "word"))
        sides = (await store.describe()).sides
        if "dense" in sides:
            found = await store.search(SearchRequest(5, vector=unit(0), with_vectors=True))
            _assert_vectors(found)
        if "lexical" in sides:
            found = await store.search(SearchRequest(5, text="word", with_vectors=True))
            _assert_vectors(found)

    @pytest.mark.parametrize(
        ("changed", "request_", "error"),
        [
            ({"embedder_id": "another embedder"}, SearchRequest(5, vector=unit(0)), EmbedderMismatchError),
            ({"analyzer": "another analysis"}, SearchRequest(5, text="word"), IndexFormatError),
        ],
        ids=["embedder", "analysis"],
    )
    def test_an_index_that_was_built_otherwise_is_refused(
        self, tmp_path: Path, changed: dict[str, Any], request_: SearchRequest, error: type[Exception]
    ) -> None:
        """Vectors of another embedder, or words of another analysis, are not searched: nothing would be right."""

        async def write(store: Store) -> None:
            if not isinstance(store, StoreBase):
                pytest.skip("this store is no StoreBase")
            await put(store, chunk("a", "word"))
            await need(store, "lexical" if request_.vector is None else "dense")

        async def read(store: Any) -> None:
            for name, value in changed.items():  # as if it was opened so
                object.__setattr__(store._identity, name, value)  # noqa: SLF001
            try:
                found = await store.search(request_)
            except error:
                return
            except IndexNotFoundError:
                found = ()
            if found:
                pytest.fail("call self._identity.check_manifest(manifest) before you read an index")
            pytest.skip("this store keeps no index in the folder")

        self.run(tmp_path, write)
        self.run(tmp_path, read)


class DenseSearchTests(StoreTestBase):
    """Search by cosine similarity."""

    @on_new_store()
    async def test_cosine_agrees_with_numpy(self, store: Store) -> None:
        """Order and scores are those of the cosine computed in double precision, whatever the limit."""
        vectors, query = units(60), unit(QUERY) * 3
        await put(store, *(chunk(f"c{row}", document=f"d{row}") for row in range(60)), vectors=vectors)
        await need(store, "dense")
        cosines = vectors.astype(np.float64) @ unit(QUERY).astype(np.float64)
        expected = [f"c{row}" for row in np.argsort(-cosines)]
        for limit in (1, 7, 59, 60, 61, 1000):
            found = await store.search(SearchRequest(limit, vector=query))
            assert [item.chunk_id for item in found] == expected[:limit]
            rows = [int(item.chunk_id[1:]) for item in found]
            np.testing.assert_allclose([item.score for item in found], cosines[rows], atol=1e-5)

    @on_new_store()
    async def test_scores_stay_in_range(self, store: Store) -> None:
        """A vector and its opposite score 1 and -1, never more for rounding."""
        for seed in range(20):
            await put(store, chunk("same"), chunk("opposite"), vectors=np.stack([unit(seed), -unit(seed)]))
            await need(store, "dense")
            found = await store.search(SearchRequest(3, vector=unit(seed)))
            assert [item.chunk_id for item in found] == ["same", "opposite"]
            np.testing.assert_allclose([item.score for item in found], [1, -1], atol=1e-6)
            assert all(-1 <= item.score <= 1 for item in found)

    @on_new_store()
    async def test_vectors_are_kept_with_the_length_1(self, store: Store) -> None:
        """Vectors of any length are stored with the length 1, so that all scores are cosines."""
        await put(store, chunk("a"), chunk("b"), vectors=units(2) * np.float32(3))
        await need(store, "dense")
        found = await store.search(SearchRequest(2, vector=unit(0), with_vectors=True))
        _assert_vectors(found)
        np.testing.assert_allclose([item.score for item in found], [1.0, float(unit(0) @ unit(1))], atol=1e-6)

    @on_new_store()
    async def test_vectors_of_zeros_are_refused(self, store: Store) -> None:
        """They are equally far from all others: none is stored, and none is searched for."""
        zeros = np.zeros(DIMENSION, dtype=np.float32)
        with pytest.raises(InvalidParameterError, match="chunk 'zero' is all zeros"):
            await put(store, chunk("fine"), chunk("zero"), vectors=np.stack([unit(1), zeros]))
        await put(store, chunk("fine"))
        await need(store, "dense")
        with pytest.raises(InvalidParameterError, match="the vector of the query is all zeros"):
            await by_vector(store, zeros, 5)
        assert await by_vector(store, unit(QUERY), 5) == ["fine"]

    @on_new_store()
    async def test_equal_cosines_are_ordered_by_id(self, store: Store) -> None:
        """Ties come in the order of the ids, also where the limit cuts through them."""
        names = [f"c{number:02}" for number in range(30)]
        shuffled = [*names[1::2], *reversed(names[::2])]
        same = np.repeat(unit(1)[np.newaxis], 30, axis=0)
        await put(store, *(chunk(name) for name in shuffled), vectors=same)
        await need(store, "dense")
        for limit in (1, 10, 30):
            assert await by_vector(store, unit(QUERY), limit) == names[:limit]

    @on_new_store()
    async def test_another_dimension_is_refused(self, store: Store) -> None:
        """A query vector of another length raises, and so do vectors to be stored."""
        await put(store, chunk("a"))
        await need(store, "dense")
        with pytest.raises(DimensionMismatchError):
            await store.search(SearchRequest(5, vector=np.ones(DIMENSION + 1, dtype=np.float32)))
        with pytest.raises(DimensionMismatchError):
            await put(store, chunk("b"), vectors=np.ones((1, DIMENSION - 1), dtype=np.float32))

    @on_new_store()
    async def test_what_is_replaced_or_removed_is_not_found(self, store: Store) -> None:
        """Searches between writes see each write at once."""
        await put(store, chunk("a", document="a"), chunk("b", document="b"), vectors=units(2))
        await need(store, "dense")
        assert (await by_vector(store, unit(0)))[0] == "a"
        await put(store, chunk("b", document="b"), vectors=unit(0)[np.newaxis])
        assert await by_vector(store, unit(0), 2) == ["a", "b"]
        await store.delete(["a"])
        assert await by_vector(store, unit(0)) == ["b"]
        await put(store, *(chunk(f"n{row}", document="n") for row in range(50)), vectors=units(50, 100))
        assert (await by_vector(store, unit(120)))[0] == "n20"


class LexicalSearchTests(StoreTestBase):
    """Promises of keyword search."""

    @on_new_store()
    async def test_rare_and_repeated_words_rank_higher(self, store: Store) -> None:
        """What BM25 is known for: rare words weigh more, occurrences count, long texts are held back."""
        filler = [chunk(f"f{number}", f"common filler number{number}", document="f") for number in range(20)]
        await put(
            store,
            *filler,
            chunk("rare", "common zebra"),
            chunk("twice", "giraffe giraffe here"),
            chunk("once", "giraffe lives here"),
            chunk("long", "elephant" + " padding" * 200),
            chunk("short", "elephant walks"),
        )
        await need(store, "lexical")
        assert (await by_text(store, "common zebra"))[0] == "rare"
        assert await by_text(store, "giraffe") == ["twice", "once"]
        assert await by_text(store, "elephant") == ["short", "long"]
        assert await by_text(store, "absent") == []

    @on_new_store()
    async def test_scores_are_positive_and_limited(self, store: Store) -> None:
        """At most the limit comes back; a word that every chunk has still finds them, with a score above 0."""
        await put(store, *(chunk(f"c{number}", "every " * (number + 1)) for number in range(9)))
        await need(store, "lexical")
        found = await store.search(SearchRequest(4, text="every"))
        assert len(found) == 4
        assert all(item.score > 0 for item in found)
        assert len(await by_text(store, "every", 100)) == 9

    @on_new_store()
    async def test_equal_scores_are_ordered_by_id(self, store: Store) -> None:
        """Ties come in the order of the ids, also where the limit cuts through them."""
        names = [f"c{number:02}" for number in range(30)]
        shuffled = [*names[1::2], *reversed(names[::2])]
        await put(store, *(chunk(name, "same words", document=f"document of {name}") for name in shuffled))
        await put(store, chunk("best", "same same"), *(chunk(f"x{number}", "other") for number in range(40)))
        await need(store, "lexical")
        for limit in (1, 11, 31):
            assert await by_text(store, "same", limit) == ["best", *names][:limit]

    @on_new_store()
    async def test_stop_words_of_a_query_are_not_searched(self, store: Store) -> None:
        """If a query has other words, its stop words find nothing: :meth:`Analyzer.query_terms` leaves them out."""
        await put(store, chunk("a", "the the the"), chunk("b", "moon"))
        await need(store, "lexical")
        assert await by_text(store, "the moon") == ["b"]
        assert await by_text(store, "the") == ["a"]

    @on_new_store()
    async def test_title_and_headings_are_searched(self, store: Store) -> None:
        """The words of :attr:`~retrieval_core.types.Chunk.indexed_text` are searched, not only the passage's."""
        await put(store, chunk("a", "passage", title="Volcanoes", section_path=("Iceland", "Lava")), chunk("b", "x"))
        await need(store, "lexical")
        for word in ("volcanoes", "iceland", "lava", "passage"):
            assert await by_text(store, word) == ["a"]

    @pytest.mark.parametrize(
        ("text", "question"),
        [
            ("The CAFÉ was closed", "cafe"),
            ("cafe\u0301", "Café"),
            ("Wir wohnen in der Straße", "STRASSE"),
            ("He runs daily", "running"),
            ("北京大学的学生", "北京"),
            ("绿茶很好", "茶"),
            ("東京タワーに行く", "タワー"),
            ("ภาษาไทยสวยงาม", "ไทย"),
            ("한국어를 배우다", "한국"),
            ("Кошка спит", "кошка"),
            ("हिन्दी में", "हिन्दी"),
            ("to be or not to be", "to be"),
            ("call getUserName first", "user name"),
        ],
    )
    def test_languages(self, tmp_path: Path, text: str, question: str) -> None:
        """Words are found in many scripts, whatever their case, accents and English endings."""

        async def test(store: Store) -> None:
            await put(store, chunk("other", "unrelated zzz"), chunk("wanted", text))
            await need(store, "lexical")
            assert await by_text(store, question) == ["wanted"]

        self.run(tmp_path, test)


def _assert_vectors(found: Sequence[Candidate]) -> None:
    assert {item.chunk_id for item in found} == {"a", "b"}
    for item in found:
        assert item.vector is not None
        np.testing.assert_allclose(item.vector, unit("ab".index(item.chunk_id)), atol=1e-6)


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
