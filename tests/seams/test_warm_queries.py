"""A query whose index and vector are in memory: the same result as one that waits for both."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from retrieval_core import RetrievalResult

QUERY = "which moon is far away"


class NotHeld(MemoryStore):
    """A store whose version is never in memory as a whole."""

    def held(self) -> None:
        return None


def facts(result: RetrievalResult) -> object:
    told = {name: value for name, value in result.metadata.items() if name != "latency_ms"}
    hits = [(hit.id, hit.chunk.text, hit.score, hit.scores) for hit in result.hits]  # each index has its own timestamps
    return hits, result.degraded, result.relevance, told


def test_a_warm_query_finds_the_same() -> None:
    """Hits, scores, judgement and metadata are those of the store's own search; a filter and a miss included."""
    chunks = [Chunk(f"{number}", f"d{number}", f"The moon {number} is far away.") for number in range(20)]
    embedder = FakeEmbedder()
    identity: Any = {"embedder_id": embedder.id, "dimension": embedder.dimension}
    with (
        open_index(embedder=embedder, store=MemoryStore(**identity)) as held,
        open_index(embedder=embedder, store=NotHeld(**identity)) as other,
    ):
        for index in (held, other):
            index.add(chunks)
            index.retrieve(QUERY)  # embeds the query
        for filters in (None, {"document_id": "d3"}, {"document_id": "none"}):
            warm, cold = (index.retrieve(QUERY, filters, use_cache=False) for index in (held, other))
            assert facts(warm) == facts(cold)


def test_a_warm_query_on_a_loop_starts_no_task() -> None:
    """It is done in one turn of the loop, on its thread."""

    async def search() -> None:
        embedder = FakeEmbedder()
        store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
        async with open_index(embedder=embedder, store=store) as index:
            await index.aadd([Chunk("a", "d", "The moon is far away.")])
            await index.aretrieve(QUERY)
            before = threading.active_count(), len(asyncio.all_tasks())
            coroutine = index.aretrieve(QUERY, use_cache=False)
            with pytest.raises(StopIteration) as done:
                coroutine.send(None)
            assert [hit.id for hit in done.value.value.hits] == ["a"]
            assert (threading.active_count(), len(asyncio.all_tasks())) == before

    asyncio.run(search())
