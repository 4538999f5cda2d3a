"""Single ways of finding passages, under the names that the field has for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.compat.hybrid import BM25Retriever, DenseRetriever, HybridRetriever, MultiVectorRetriever
from retrieval_core.config import load_config
from retrieval_core.errors import InvalidParameterError, SearchError
from retrieval_core.pipeline import RetrievalPipeline
from retrieval_core.ports import Candidate, Change
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types.filters import Eq
from support.pipelines import PHONES, TroubledStore, filled

if TYPE_CHECKING:
    from retrieval_core.compat.hybrid import StoreRetriever
    from retrieval_core.ports import SearchRequest, Store

SATURN = "rings of Saturn"


def a_store() -> TroubledStore:
    store = TroubledStore()
    filled(store)
    return store


def titles() -> MemoryStore:
    """Return a store with the vectors of titles, for all chunks but the last."""
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)

    async def fill() -> None:
        vectors = await embedder.embed_texts(["Bread", "Saturn", "Revisions"])
        await store.upsert(Change(chunks=tuple(PHONES[:3]), vectors=vectors))

    asyncio.run(fill())
    return store


def test_words_alone() -> None:
    """BM25 finds nothing that shares no word with the question, and embeds nothing."""
    with BM25Retriever(a_store()) as retriever:
        hits = retriever.retrieve(SATURN)
    assert [hit.id for hit in hits] == ["p3"]
    assert hits[0].scores.lexical == hits[0].score


def test_meaning_alone() -> None:
    """The score is the cosine."""
    with DenseRetriever(a_store(), FakeEmbedder()) as retriever:
        hits = retriever.retrieve(SATURN, k=2)
    assert hits[0].id == "p3"
    assert [hit.scores.dense for hit in hits] == [hit.score for hit in hits]


def test_both() -> None:
    """The weight shifts between the sides; with the specification's formula all of it is on one of them."""
    question = "Saturn bread crust minutes"
    with HybridRetriever(a_store(), FakeEmbedder(), dense_weight=0.0, fusion="minmax") as words:
        hits = words.retrieve(question)
        assert (hits[0].id, hits[0].score) == ("p2", 1.0)
    with HybridRetriever(a_store(), FakeEmbedder()) as both:
        assert {hit.id for hit in both.retrieve(question, filters=Eq("brand", "Zenith"))} == {"p2", "p3"}


@pytest.mark.parametrize("kind", ["bm25", "dense", "hybrid", "multi-vector"])
def test_each_is_a_retriever_for_another_pipeline(kind: str) -> None:
    """It gives candidates with their chunks, and serves beside another index."""
    embedder = FakeEmbedder()
    retrievers: dict[str, StoreRetriever] = {
        "bm25": BM25Retriever(a_store()),
        "dense": DenseRetriever(a_store(), embedder),
        "hybrid": HybridRetriever(a_store(), embedder),
        "multi-vector": MultiVectorRetriever(a_store(), embedder, {"title": 0.5}, stores={"title": titles()}),
    }
    retriever = retrievers[kind]
    found = asyncio.run(retriever.search(SATURN, 2))
    assert found
    assert all(isinstance(item, Candidate) and item.chunk is not None for item in found)
    empty = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    asyncio.run(empty.upsert(Change()))
    with RetrievalPipeline(empty, embedder, retrievers={kind: cast("Any", retriever)}) as pipeline:
        hits = pipeline.retrieve(SATURN).hits
    assert "p3" in {hit.id for hit in hits}
    assert {origin.kind for hit in hits for origin in hit.found_by} == {kind}


def test_a_failure_is_told() -> None:
    """Nothing stands in for a retriever that fails."""
    store = a_store()
    store.failures["lexical"] = ValueError("gone")
    retriever = BM25Retriever(store)
    with pytest.raises(SearchError, match="gone"):
        retriever.retrieve(SATURN)


def test_several_vectors() -> None:
    """A second search in another store is combined with the first; where its weight is large, the title decides."""
    embedder, mean = FakeEmbedder(), {"weights": {"title": 100.0}, "rule": "mean"}
    with MultiVectorRetriever(a_store(), embedder, stores={"title": titles()}, fusion_config=mean) as by_title:
        hits = by_title.retrieve("Saturn")
    assert hits[0].id == "p1"
    assert {hit.id for hit in hits} == {"p0", "p1", "p2", "p3"}
    config = {"weights": {"title": 0.1}, "rule": "max"}
    with MultiVectorRetriever(a_store(), embedder, stores={"title": titles()}, fusion_config=config) as by_best:
        assert by_best.retrieve("Saturn")[0].id == "p3"
        assert asyncio.run(by_best.search("Saturn", 1))[0].chunk_id == "p3"


def test_several_vectors_are_cached_by_weight_and_version() -> None:
    embedder = FakeEmbedder()
    first, second = (
        MultiVectorRetriever(titles(), embedder, {"title": weight}, stores={"title": titles()}) for weight in (0.5, 1.0)
    )
    assert first.id != second.id
    before = asyncio.run(first.version())
    assert before is not None
    asyncio.run(first._several.upsert(Change(chunks=(PHONES[0],), vectors=asyncio.run(embedder.embed_texts(["x"])))))
    assert asyncio.run(first.version()) != before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {}}, "at least one"),
        ({"weights": {"title": 1.0}}, "stores has none"),
        ({"fusion_config": {"rule": "median"}}, "'mean' or 'max'"),
        ({"fusion_config": {"weight": {}}}, "weights and rule"),
        ({"weights": {"title": 0}, "stores": {"title": MemoryStore()}}, "greater than 0"),
    ],
)
def test_a_wrong_combination_of_vectors_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        MultiVectorRetriever(a_store(), FakeEmbedder(), **settings)


class OwnHybrid(TroubledStore):
    """Searches both sides at once, in an order of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[SearchRequest] = []

    async def search_both(self, request: SearchRequest) -> tuple[Candidate, ...]:
        await self._serve("both")
        self.asked.append(request)
        return (Candidate("p2", 0.9), Candidate("p3", 0.1))


def native(store: Store, **settings: object) -> RetrievalPipeline:
    overrides = {"search.fusion": "native", "cache.kind": "none", "retry.max_retries": 0, **settings}
    return RetrievalPipeline(store, FakeEmbedder(), config=load_config(overrides=overrides))


def test_a_stores_own_hybrid_search() -> None:
    """One request has both, and the store's order stands; the cosines are the question's."""
    store = OwnHybrid()
    filled(store)
    result = native(store).retrieve(SATURN)
    assert [hit.id for hit in result.hits] == ["p2", "p3"]
    assert [hit.scores.fused for hit in result.hits] == [0.9, 0.1]
    assert result.hits[1].scores.dense is not None
    assert store.asked[0].text == SATURN
    assert store.asked[0].vector is not None
    assert (store.calls["dense"], store.calls["lexical"], store.calls["both"]) == (0, 0, 1)


def test_a_stores_own_hybrid_search_without_an_embedding() -> None:
    """Where the question cannot be embedded, words answer."""
    store = OwnHybrid()
    filled(store)
    pipeline = native(store)
    embedder = pipeline.embedder
    assert isinstance(embedder, FakeEmbedder)
    embedder.failure = ConnectionError("gone")
    result = pipeline.retrieve(SATURN)
    assert [hit.id for hit in result.hits] == ["p3"]
    assert [entry.stage for entry in result.degraded] == ["embed"]


def test_a_store_without_a_hybrid_search() -> None:
    """It is told before anything is searched, with what to do."""
    with pytest.raises(InvalidParameterError, match="lancedb"):
        native(a_store()).retrieve(SATURN)


def test_a_dead_hybrid_search() -> None:
    """The result is empty and says why."""
    store = OwnHybrid()
    filled(store)
    store.failures["both"] = ConnectionError("gone")
    result = native(store).retrieve(SATURN)
    assert result.hits == ()
    assert [entry.stage for entry in result.degraded] == ["hybrid"]
