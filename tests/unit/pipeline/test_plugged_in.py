"""What plug-ins of a user's own may do wrong, and what results that they took part in depend on."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from retrieval_core.adapters.caches.memory import MemoryCache
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.compat.hybrid import BM25Retriever, HybridRetriever
from retrieval_core.config import load_config
from retrieval_core.errors import (
    ConfigurationError,
    DeadlineExceededError,
    InvalidParameterError,
    SearchError,
)
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.pipeline.options import LONGEST_TURN, MOST_TURNS
from retrieval_core.ports import Candidate, Change, Linked, Retriever, SearchRequest, Transformed, Variant, as_plugin
from retrieval_core.testing.clock import FakeClock
from retrieval_core.testing.fakes import FakeEmbedder, FakeTransformer
from retrieval_core.types import Chunk
from support.pipelines import TroubledStore, filled

if TYPE_CHECKING:
    from collections.abc import Sequence

SATURN = "rings of Saturn"


def a_pipeline(**plugged_in: Any) -> RetrievalPipeline:
    store = TroubledStore()
    filled(store)
    use = [*plugged_in.get("transformers", {})]
    config = load_config(overrides={"transform.use": use, **plugged_in.pop("settings", {})})
    return RetrievalPipeline(store, FakeEmbedder(), config=config, clock=FakeClock(), **plugged_in)


def a_memory_store(name: str, text: str) -> MemoryStore:
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    filled(store, [Chunk(name, "notes", text)])
    return store


def test_a_plain_set_of_sides_will_do() -> None:
    """It need not be a frozen one."""
    made = Transformed(variants=(Variant("x", SATURN, cast("Any", {"dense"})),))
    assert not a_pipeline(transformers={"set": FakeTransformer(made)}).retrieve("bread").degraded


def test_what_is_searched_beside_a_question_is_bounded() -> None:
    """However much a transformer gives, a question costs a bounded number of searches and reads."""
    store = TroubledStore()
    filled(store)
    made = Transformed(
        variants=tuple(Variant("x", f"{SATURN} {number}") for number in range(100)),
        linked=tuple(Linked("x", "y", (Candidate("p0", 1.0),)) for _ in range(100)),
    )
    config = load_config(overrides={"transform.use": ["much"], "cache.kind": "none"})
    RetrievalPipeline(
        store, FakeEmbedder(), config=config, clock=FakeClock(), transformers={"much": FakeTransformer(made)}
    ).retrieve("bread")
    assert store.calls["lexical"] == 17
    assert store.calls["fetch"] <= 17


def test_results_depend_on_what_a_retriever_holds() -> None:
    """A write to the index of a further retriever is seen by the next question."""
    second = a_memory_store("second", "Saturn is far away.")
    main = a_memory_store("main", "Bread is baked.")
    pipeline = RetrievalPipeline(
        main,
        FakeEmbedder(),
        retrievers={"second": as_plugin(BM25Retriever(second), Retriever)},
        cache=MemoryCache(10, 300),
    )
    assert "Saturn is far away." in {hit.chunk.text for hit in pipeline.retrieve("Saturn").hits}
    assert pipeline.retrieve("Saturn").from_cache
    filled(second, [Chunk("second", "notes", "Saturn is near.")])
    result = pipeline.retrieve("Saturn")
    assert not result.from_cache
    assert "Saturn is near." in {hit.chunk.text for hit in result.hits}


def test_a_retriever_that_does_not_tell_what_it_holds_is_not_cached() -> None:
    """Two results with it cannot be known to be the same."""
    store = TroubledStore()
    filled(store)
    assert BM25Retriever(store).id == ""
    pipeline = a_pipeline(retrievers={"second": BM25Retriever(store)}, cache=MemoryCache(10, 300))
    assert not pipeline.retrieve(SATURN).from_cache
    assert not pipeline.retrieve(SATURN).from_cache


def test_a_further_index_that_was_not_yet_written_finds_nothing() -> None:
    """It is no failure, and neither are more candidates than a query may have hits."""
    embedder = FakeEmbedder()
    empty = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    pipeline = a_pipeline(retrievers={"empty": BM25Retriever(empty)}, settings={"search.candidates": 5000})
    result = pipeline.retrieve(SATURN)
    assert result.hits[0].id == "p3"
    assert not result.degraded


class Slow(FakeEmbedder):
    """Fails to embed several questions at once."""

    async def embed_queries(self, texts: Sequence[str]) -> Any:
        raise ConnectionError("gone")


def test_a_batch_that_fails_does_not_close_the_way_for_single_questions() -> None:
    """Its breaker is its own, and after the first batch that fails no other is tried."""
    store = TroubledStore()
    filled(store)
    settings = {"cache.kind": "none", "retry.max_retries": 0, "breaker.failures": 1}
    pipeline = RetrievalPipeline(store, Slow(), config=load_config(overrides=settings), clock=FakeClock())
    outcomes = pipeline.retrieve_many([f"{SATURN} {number}" for number in range(200)])
    assert all(outcome.result is not None and not outcome.result.degraded for outcome in outcomes)


def test_an_error_of_python_stays_with_its_question() -> None:
    """An exception that no plug-in should raise becomes that question's error."""
    pipeline = a_pipeline(settings={"cache.kind": "none"})
    retrieve = pipeline._retrieve

    async def failing(query: Any, plan: Any) -> Any:
        if "bread" in query.text:
            raise KeyError("odd")
        return await retrieve(query, plan)

    cast("Any", pipeline)._retrieve = failing
    first, second = pipeline.retrieve_many(["bread", SATURN])
    assert isinstance(first.error, SearchError)
    assert second.result is not None
    assert second.result.hits


def test_wrong_settings_of_a_retriever() -> None:
    """They are the library's own errors, with the key."""
    with pytest.raises(ConfigurationError, match=r"search\.dense_weight"):
        HybridRetriever(TroubledStore(), FakeEmbedder(), dense_weight=3)
    with pytest.raises(ConfigurationError, match=r"search\.fusion"):
        HybridRetriever(TroubledStore(), FakeEmbedder(), fusion=cast("Any", "magic"))


def test_a_long_conversation_is_cut() -> None:
    """The last turns count, each with its beginning; a role that is no text is refused."""
    seen = FakeTransformer()
    pipeline = a_pipeline(transformers={"seen": seen})
    pipeline.retrieve(SATURN, history=[{"role": "user", "content": f"{n} " + "x" * 20_000} for n in range(300)])
    history = seen.asked[0][1].history
    assert len(history) == MOST_TURNS
    assert {len(turn.content) for turn in history} == {LONGEST_TURN}
    assert history[-1].content.startswith("299 ")
    odd: Any = [{"role": [], "content": "x"}]
    with pytest.raises(InvalidParameterError, match="turn 1"):
        pipeline.retrieve(SATURN, history=odd)
    with pytest.raises(InvalidParameterError, match="no transformer"):
        pipeline.retrieve(SATURN, transforms=cast("Any", [[]]))


class Odd(FakeEmbedder):
    """An embedder whose next call goes wrong."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self.error = error

    async def embed_query(self, text: str) -> Any:
        if self.error is not None:
            raise self.error
        return await super().embed_query(text)


@pytest.mark.slow
def test_a_plug_in_that_blocks_the_event_loop() -> None:
    """No clock can end it; a synchronous call ends all the same, and the next one has another loop."""
    over: SimpleQueue[None] = SimpleQueue()

    class Blocking(Odd):
        async def embed_query(self, text: str) -> Any:
            if "blocks" in text:
                over.get()  # as little of the processor as a loop that waits
            return await super().embed_query(text)

    store = TroubledStore()
    filled(store)
    config = load_config(overrides={"deadline_seconds": 1})
    with RetrievalPipeline(store, Blocking(), config=config, clock=FakeClock()) as pipeline:
        try:
            with pytest.raises(DeadlineExceededError, match="blocks the event loop"):
                pipeline.retrieve("what blocks")
            with pytest.raises(DeadlineExceededError, match="blocks the event loop"):
                next(pipeline.answer_stream("what blocks"))
            assert pipeline.retrieve(SATURN).hits[0].id == "p3"
        finally:
            for _ in range(2):
                over.put(None)


NO_VECTORS: dict[str, Any] = {
    "nan": np.full(256, np.nan),
    "infinite": [float("inf")] * 256,
    "beyond float32": np.full(256, 1e300),
    "complex": np.full(256, 1 + 2j),
    "complex numbers": [1 + 2j] * 256,
    "text": ["a"] * 256,
    "digits": ["1"] * 256,
    "one text": "abc",
    "bytes": b"abc",
    "nothing": None,
    "a mapping": {},
    "objects": [object()] * 256,
    "of two lengths": [[1.0], [1.0, 2.0]],
    "beyond all floats": [10**400] * 256,
    "truths": [True] * 256,
}


@pytest.mark.parametrize("vector", [*NO_VECTORS.values(), np.zeros(256)], ids=[*NO_VECTORS, "zeros"])
def test_what_is_no_vector_is_told_from_one(vector: Any) -> None:
    """A question is searched for by words where an embedder gives what cannot be compared, alone or of several."""

    class Gives(FakeEmbedder):
        async def embed_query(self, text: str) -> Any:
            return vector

        async def embed_queries(self, texts: Sequence[str]) -> Any:
            return [vector] * len(texts)

    store = TroubledStore()
    filled(store)
    with RetrievalPipeline(store, Gives()) as pipeline:
        result = pipeline.retrieve(SATURN)
        assert result.hits[0].id == "p3"
        assert [entry.stage for entry in result.degraded] == ["embed"]
        first, second = pipeline.retrieve_many([SATURN, "bread"])
    assert first.result is not None
    assert second.result is not None
    assert {entry.stage for entry in (*first.result.degraded, *second.result.degraded)} == {"embed"}


@pytest.mark.parametrize("vector", NO_VECTORS.values(), ids=NO_VECTORS)
def test_what_is_no_vector_is_refused(vector: Any) -> None:
    """Whoever asks a store, or writes to it, is told before anything is done; lists of numbers will do."""
    chunk = Chunk("x", "x", "text")
    with pytest.raises(InvalidParameterError, match="vectors must"):
        Change(chunks=(chunk,), vectors=cast("Any", [vector]))
    if vector is not None:
        with pytest.raises(InvalidParameterError, match="vectors must"):
            SearchRequest(1, vector=vector)


def test_plain_lists_of_numbers_are_vectors() -> None:
    """They are compared as arrays are, however large the numbers."""
    store = MemoryStore(embedder_id="e", dimension=2)
    numbers: Any = [[1e30, 0], [1, 1]]
    asyncio.run(store.upsert(Change(chunks=(Chunk("a", "a", "x"), Chunk("b", "b", "y")), vectors=numbers)))
    found = asyncio.run(store.search(SearchRequest(2, vector=cast("Any", [0, 2]))))
    assert [(item.chunk_id, round(item.score, 3)) for item in found] == [("b", 0.707), ("a", 0.0)]
