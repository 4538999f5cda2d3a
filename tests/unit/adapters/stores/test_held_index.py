"""An index in memory gives the same results and errors as the store that holds it, and never those of another state."""

from __future__ import annotations

import asyncio
import pickle
import sqlite3
import tempfile
from contextlib import closing, suppress
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore, arrays, changes, connections, read
from retrieval_core.errors import IncompleteSearchError, RetrievalError
from retrieval_core.ports import Candidate, Change, ChunkRange, FetchRequest, SearchRequest, as_store
from retrieval_core.testing import filter_strategies
from retrieval_core.testing.store_kit.base import chunk, document
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Section, Span

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from sqlite3 import Connection

    from retrieval_core.ports import HeldIndex
    from retrieval_core.types import Chunk

DIMENSION = 3
WORDS = ("moon", "moons", "roll", "back", "rollback", "user_id", "the", "日本", "sun")
ANALYZER = Analyzer()
TERMS = frozenset(term for word in WORDS for term in ANALYZER.terms(word))
TEXTS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
NAMES = st.sampled_from([f"c{number}" for number in range(8)])
DOCUMENTS = st.sampled_from(["d0", "d1", "d2"])
VECTORS = st.lists(st.integers(-2, 2), min_size=DIMENSION, max_size=DIMENSION).filter(any)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as settled, and nothing has to pass before an index is held again."""
    monkeypatch.setattr(changes, "SETTLED", -1e9)
    monkeypatch.setattr(connections, "IDLE", 0)
    monkeypatch.setattr(connections, "LEAST_PAUSE", 0)


async def held_by(store: SqliteStore) -> HeldIndex | None:
    """Ask a few times, as queries do; ``None`` if the store holds nothing all the same."""
    for _ in range(200):
        if (held := store.held()) is not None:
            return held
        with suppress(IncompleteSearchError):
            await store.search(SearchRequest(1, text="moon"))
        await asyncio.sleep(0.001)
    return None


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    return chunk(
        draw(NAMES),
        draw(TEXTS),
        draw(DOCUMENTS),
        chunk_index=draw(st.integers(0, 4)),
        title=draw(st.none() | TEXTS),
        parent_id=draw(st.none() | st.sampled_from(["s0", "s1"])),
        metadata=draw(filter_strategies.metadata()),
    )


@st.composite
def writes(draw: st.DrawFn) -> Change | tuple[str, ...]:
    """A change, or the names of documents to delete."""
    if draw(st.integers(0, 4)) == 0:
        return tuple(draw(st.lists(DOCUMENTS, max_size=2)))
    added = draw(st.lists(chunks(), max_size=6, unique_by=lambda item: item.id))
    late = frozenset(item.id for item in added if draw(st.integers(0, 7)) == 0)
    embedded = len(added) - len(late)
    return Change(
        tuple(added),
        np.array([draw(VECTORS) for _ in range(embedded)], np.float32) if embedded else None,
        tuple(map(document, draw(st.lists(DOCUMENTS, max_size=2, unique=True)))),
        tuple(
            Section(name, draw(DOCUMENTS), "section", (), Span(0, 1))
            for name in draw(st.lists(st.sampled_from(["s0", "s1"]), max_size=2, unique=True))
        ),
        unembedded=late,
    )


LIMITS, FILTERS = st.integers(-1, 12), st.none() | filter_strategies.filters()
SEARCHES = st.builds(
    SearchRequest,
    limit=LIMITS,
    vector=st.none() | VECTORS | st.just([1, 2]),
    text=st.none() | TEXTS,
    filter=FILTERS,
    with_vectors=st.booleans(),
)
RANGES = st.builds(ChunkRange, DOCUMENTS, st.integers(-1, 5), st.integers(-1, 5))
FETCHES = st.builds(
    FetchRequest,
    chunk_ids=st.lists(NAMES | st.just("\ud800"), max_size=3).map(tuple),
    ranges=st.lists(RANGES, max_size=2).map(tuple),
    section_ids=st.lists(st.sampled_from(["s0", "s1", "s2"]), max_size=2).map(tuple),
    document_ids=st.lists(DOCUMENTS | st.just("d3"), max_size=2).map(tuple),
    filter=FILTERS,
    with_vectors=st.booleans(),
)


def shown(found: tuple[Candidate, ...]) -> list[Any]:
    return [(item.chunk_id, item.score, None if item.vector is None else item.vector.tolist()) for item in found]


async def outcome(ask: Callable[[], Any | Awaitable[Any]]) -> Any:
    """What a call returned or raised, in a form that can be compared."""
    try:
        found = ask()
        found = await found if asyncio.iscoroutine(found) else found
    except RetrievalError as error:
        return type(error), str(error), shown(error.found) if isinstance(error, IncompleteSearchError) else ()
    if isinstance(found, tuple):
        return shown(found)
    vectors = getattr(found, "vectors", None)
    if vectors is None:
        return found
    return found.chunks, {name: vector.tolist() for name, vector in vectors.items()}, found.sections, found.documents


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.lists(writes(), min_size=1, max_size=4),
    st.lists(SEARCHES, min_size=1, max_size=6),
    st.lists(FETCHES, max_size=4),
    st.sampled_from(["both", "words", "no vectors"]),
)
def test_it_agrees_with_the_store(
    made: list[Change | tuple[str, ...]],
    searches: list[SearchRequest],
    fetches: list[FetchRequest],
    kind: Literal["both", "words", "no vectors"],
) -> None:
    """For any writes, requests and filters: the same results in the same order, scores to the bit, and errors."""

    async def test(folder: Path) -> None:
        vectors: dict[str, Any] = {} if kind == "no vectors" else {"embedder_id": "e", "dimension": DIMENSION}
        store = SqliteStore(folder / "index.db", **vectors)
        for write in (Change(), *made):
            if isinstance(write, tuple):
                await store.delete(write)
            else:
                plain = Change(write.chunks, None, write.documents, write.sections)
                await store.upsert(plain if kind == "no vectors" else write)
        if kind == "words":
            await store.aclose()
            store = SqliteStore(folder / "index.db")
        if (await store.describe()).chunks:
            held = await held_by(store)
            assert held is not None
            assert held.version == await store.version()
            for request in searches:
                expected = await outcome(lambda request=request: store.search(request))
                assert await outcome(lambda request=request: held.search(request)) == expected
            for wanted in fetches:
                expected = await outcome(lambda wanted=wanted: store.fetch(wanted))
                assert await outcome(lambda wanted=wanted: held.fetch(wanted)) == expected
            for request in searches:
                expected = await store.count_terms(WORDS, request.filter)
                assert held.count_terms(WORDS, request.filter) == expected
            for text in WORDS:
                kept = [item.chunk for item in held.search(SearchRequest(9, text=text)) if item.chunk is not None]
                found = held.find_terms(TERMS, kept, ANALYZER.id)
                assert found == [TERMS.intersection(ANALYZER.terms(item.indexed_text)) for item in kept]
        await store.aclose()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(test(Path(folder)))


def filled(store: SqliteStore | MemoryStore, *names: str) -> Awaitable[None]:
    return store.upsert(
        Change(tuple(chunk(name, f"moon {name}") for name in names), np.ones((len(names), 3), np.float32))
    )


def opened(folder: Path, **options: Any) -> SqliteStore:
    return SqliteStore(folder / "index.db", embedder_id="e", dimension=3, **options)


def test_each_candidate_brings_its_chunk(tmp_path: Path) -> None:
    """Nothing has to be read for hits of an index in memory."""

    async def test() -> None:
        store = opened(tmp_path)
        await filled(store, "a", "b")
        held = await held_by(store)
        assert held is not None
        for request in (SearchRequest(9, vector=np.ones(3, np.float32)), SearchRequest(9, text="moon")):
            assert [item.chunk for item in held.search(request)] == [chunk("a", "moon a"), chunk("b", "moon b")]
        await store.aclose()

    asyncio.run(test())


def test_candidates_are_made_as_by_anybody(tmp_path: Path) -> None:
    """They are equal to others, can be copied, and never change."""

    async def test() -> None:
        store = opened(tmp_path)
        await filled(store, "a")
        held = await held_by(store)
        assert held is not None
        (found,) = held.search(SearchRequest(1, text="moon"))
        made = Candidate(found.chunk_id, found.score, found.chunk)
        assert (type(found), found, repr(found)) == (Candidate, made, repr(made))
        assert replace(found, score=0.5).score == 0.5
        assert pickle.loads(pickle.dumps(found)) == found
        with pytest.raises(FrozenInstanceError):
            found.score = 1.0  # type: ignore[misc]
        await store.aclose()

    asyncio.run(test())


def test_terms_are_only_found_in_chunks_of_the_index(tmp_path: Path) -> None:
    """Those of another analyzer, and a chunk with another text, are left to whoever asks."""

    async def test() -> None:
        store = opened(tmp_path)
        await filled(store, "a", "b")
        held = await held_by(store)
        assert held is not None
        own = [item.chunk for item in held.search(SearchRequest(9, text="moon")) if item.chunk is not None]
        assert held.find_terms(["moon", "b", "sun"], own, ANALYZER.id) == [{"moon"}, {"moon", "b"}]
        assert held.find_terms(["moon"], own, "another") is None
        assert held.find_terms(["moon"], [chunk("a", "sun")], ANALYZER.id) is None
        assert held.find_terms(["moon"], [chunk("c", "moon")], ANALYZER.id) is None
        await store.aclose()

    asyncio.run(test())


def test_the_first_query_of_a_version_builds_nothing(tmp_path: Path) -> None:
    """A program that asks one question does not pay; neither does one that writes before every query."""

    async def test() -> None:
        store = opened(tmp_path)
        await filled(store, "a")
        for _ in range(3):  # a query may ask several times, and for the version
            assert store.held() is None
            await store.version()
        await asyncio.sleep(0.1)
        assert not store.is_loaded
        assert await held_by(store) is not None
        before = store.loaded_bytes
        assert before > 0
        for name in "bcd":
            await filled(store, name)
            assert store.held() is None
            await store.search(SearchRequest(1, text="moon"))
            await asyncio.sleep(0.05)
            assert store.loaded_bytes < before
        await store.aclose()
        assert store.held() is None
        assert not store.is_loaded

    asyncio.run(test())


def test_a_write_of_another_process_is_seen(tmp_path: Path) -> None:
    """The index in memory is that of the file's present state, whoever wrote it."""

    async def test() -> None:
        store, other = opened(tmp_path), opened(tmp_path)
        await filled(store, "a")
        assert await held_by(store) is not None
        await filled(other, "b")
        assert store.held() is None
        held = await held_by(store)
        assert held is not None
        assert len(held.search(SearchRequest(9, text="moon"))) == 2
        for each in (store, other):
            await each.aclose()

    asyncio.run(test())


@pytest.mark.parametrize("limit", ["MOST_CHUNKS", "MOST_BYTES"])
def test_a_large_index_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Neither one with many chunks nor one with many bytes."""
    monkeypatch.setattr(arrays, limit, 1)
    tried: list[int] = []

    def count(view: Connection) -> int:
        tried.append(1)
        return read.count_written_chunks(view)

    monkeypatch.setattr(arrays, "count_written_chunks", count)

    async def test() -> None:
        store = opened(tmp_path)
        await filled(store, "a", "b")
        assert await held_by(store) is None
        assert len(tried) == 1, "it is tried once for each state"
        await store.aclose()

    asyncio.run(test())


def test_a_store_that_searches_in_its_own_way_is_asked_itself(tmp_path: Path) -> None:
    """A subclass, an object with another method, a wrapper, and a store with quantized vectors are not bypassed."""

    class Subclass(MemoryStore):
        async def search(self, request: SearchRequest) -> tuple[Candidate, ...]:
            return await super().search(request)

    class Wrapper:
        def __init__(self, store: object) -> None:
            self.store = store

        def __getattr__(self, name: str) -> object:
            return getattr(self.store, name)

    async def test() -> None:
        plain, replaced = MemoryStore(embedder_id="e", dimension=3), MemoryStore(embedder_id="e", dimension=3)
        other, quantized = Subclass(embedder_id="e", dimension=3), opened(tmp_path, quantized=True)
        for store in (plain, replaced, other, quantized):
            await filled(store, "a")
        replaced.search = plain.search  # type: ignore[method-assign]
        assert plain.held() is not None
        assert replaced.held() is other.held() is as_store(Wrapper(plain)).held() is None
        assert await held_by(quantized) is None
        await quantized.aclose()

    asyncio.run(test())


@pytest.mark.parametrize("part", ["DELETE FROM word_segments", "DELETE FROM chunks WHERE id = 'c0'"])
def test_an_index_that_lacks_a_part_is_not_held(part: str, tmp_path: Path) -> None:
    """It is searched in the file, which says what is damaged."""
    path = tmp_path / "index.db"

    async def held() -> HeldIndex | None:
        store = SqliteStore(path)
        try:
            await store.hold()
            return await held_by(store)
        finally:
            await store.aclose()

    async def fill() -> None:
        store = SqliteStore(path)
        await store.upsert(Change((chunk("c0", "moon"), chunk("c1", "sun"))))
        await store.aclose()

    asyncio.run(fill())
    assert asyncio.run(held()) is not None
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(part)
    assert asyncio.run(held()) is None
