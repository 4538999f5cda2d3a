"""A query whose index and vector are in memory: the same result as one that waits for both."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from retrieval_core import Chunk, open_index
from retrieval_core.adapters.stores import columns, held
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import IndexNotFoundError
from retrieval_core.run.threads import ThreadPool
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from retrieval_core import RetrievalResult

QUERY = "which moon is far away"
UNKNOWN = "moon E0308"
"""With an identifier that no chunk contains."""


class NotHeld(MemoryStore):
    """A store whose version is never in memory as a whole."""

    def held(self) -> None:
        return None


def facts(result: RetrievalResult) -> object:
    told = {name: value for name, value in result.metadata.items() if name != "latency_ms"}
    hits = [(hit.id, hit.chunk.text, hit.score, hit.scores) for hit in result.hits]  # each index has its own timestamps
    return hits, result.degraded, result.relevance, told


def test_a_warm_query_finds_the_same() -> None:
    """Hits, scores, judgement and metadata are those of the store's own search; filters and unknown words included."""
    chunks = [Chunk(f"{number}", f"d{number}", f"The moon {number} is far away.") for number in range(20)]
    embedder = FakeEmbedder()
    identity: Any = {"embedder_id": embedder.id, "dimension": embedder.dimension}
    with (
        open_index(embedder=embedder, store=MemoryStore(**identity)) as warm,
        open_index(embedder=embedder, store=NotHeld(**identity)) as other,
    ):
        for index in (warm, other):
            index.add(chunks)
            index.retrieve(QUERY)  # embeds the query
            index.retrieve(UNKNOWN)
        for query in (QUERY, UNKNOWN):
            for filters in (None, {"document_id": "d3"}, {"document_id": "none"}):
                found, expected = (index.retrieve(query, filters, use_cache=False) for index in (warm, other))
                assert facts(found) == facts(expected)
        relevance = warm.retrieve(UNKNOWN).relevance
        assert relevance is not None
        assert relevance.unknown == ("E0308",)


def test_a_warm_query_on_a_loop_starts_no_task() -> None:
    """It is done in one turn of the loop, on its thread."""

    async def search() -> None:
        embedder = FakeEmbedder()
        store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
        async with open_index(embedder=embedder, store=store) as index:
            await index.aadd([Chunk("a", "d", "The moon is far away.")])
            await index.aretrieve(QUERY)
            assert ids(await done_at_once(index.aretrieve(QUERY, use_cache=False))) == ["a"]

    asyncio.run(search())


def test_a_loaded_index_is_searched_without_threads(tmp_path: Path) -> None:
    """After loading, queries start no work in a thread, and nothing that blocks runs on the loop, or they fail.

    A thread detects the language of a query with stop words, if its hits have few of its words.
    """
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.add([Chunk(f"{n}", f"d{n}", f"The moon {n} is far away.", metadata={"n": n}) for n in range(20)])

    async def search() -> None:
        async with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
            await index.aload()
            await index.aretrieve(QUERY)  # the first one looks at a file, whether all documents are indexed
            before = set(threading.enumerate())
            with patch.object(ThreadPool, "start", side_effect=AssertionError("a query starts work in a thread")):
                for query in (QUERY, UNKNOWN, "near moon", "which moon is far", "nearby planets"):
                    assert not (await index.aretrieve(query)).degraded
                    assert ids(await index.aretrieve(query, {"n": 3}, use_cache=False)) == ["3"]
                assert len((await done_at_once(index.aretrieve(QUERY, use_cache=False))).hits) == 10
            assert set(threading.enumerate()) <= before

    asyncio.run(search())


def test_a_large_index_is_prepared_for_a_filter_in_a_thread(tmp_path: Path) -> None:
    """Encoding a field of 20,000 chunks takes 10 to 40 ms, and is done once: the loop goes on meanwhile."""
    threads = list[int]()

    class SeenColumn(columns.Column):
        def extend(self, length: int, positions: Any, values: Any) -> None:
            threads.append(threading.get_ident())
            super().extend(length, positions, values)

    async def search() -> None:
        async with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
            await index.aadd(
                [Chunk(f"{n}", f"d{n}", f"The moon {n} is far away.", metadata={"n": n}) for n in range(9)]
            )
            await index.aload()
            await index.aretrieve(QUERY)
            assert ids(await index.aretrieve(QUERY, {"n": 3})) == ["3"]
            assert len(threads) == 1
            assert threads[0] != threading.get_ident()
            assert ids(await done_at_once(index.aretrieve(QUERY, {"n": 4}))) == ["4"]
            assert len(threads) == 1

    with patch.object(held, "MOST_ON_LOOP", 1), patch.object(held, "Column", SeenColumn):
        asyncio.run(search())


def test_many_threads_search_a_loaded_index_at_once(tmp_path: Path) -> None:
    """None of them has to read the file, since another one asks whether it has changed."""
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.add([Chunk(f"{n}", f"d{n}", f"The moon {n} is far away.") for n in range(20)])
        index.load()
        expected = ids(index.retrieve(QUERY))

        def search(_: int) -> list[str]:
            return ids(index.retrieve(QUERY, use_cache=False))

        with (
            patch.object(ThreadPool, "start", side_effect=AssertionError("a query starts work in a thread")),
            ThreadPoolExecutor(32) as pool,
        ):
            assert list(pool.map(search, range(300))) == [expected] * 300


def test_loading_an_index_that_does_not_exist_changes_nothing(tmp_path: Path) -> None:
    """The first query says that it is missing, as it does without loading."""
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.load()
        with pytest.raises(IndexNotFoundError):
            index.retrieve(QUERY)
        index.add([Chunk("a", "d", "The moon is far away.")])
        index.load()
        assert ids(index.retrieve(QUERY)) == ["a"]
        index.add([Chunk("b", "d", "A moon that is far away.")])
        assert sorted(ids(index.retrieve(QUERY))) == ["a", "b"]


def ids(result: RetrievalResult) -> list[str]:
    return [hit.id for hit in result.hits]


async def done_at_once(query: Coroutine[Any, Any, RetrievalResult]) -> RetrievalResult:
    """Return the result of a query that waits for nothing, and starts neither tasks nor threads."""
    before = threading.active_count(), len(asyncio.all_tasks())
    with pytest.raises(StopIteration) as done:
        query.send(None)
    assert (threading.active_count(), len(asyncio.all_tasks())) == before
    return done.value.value
