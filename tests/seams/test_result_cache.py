"""Results are cached only if the store reports a version; the specification's pipeline has a cache of its own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

pytest.importorskip("qdrant_client", reason="the extra 'qdrant' is not installed")
pytest.importorskip("jsonschema", reason="the group 'test-qdrant' is not installed")
pytest.importorskip("pinecone", reason="the extra 'pinecone' is not installed")

from pinecone import Pinecone
from qdrant_client import QdrantClient, models

from retrieval_core import Chunk, load_config, open_index, open_indexes
from retrieval_core.compat import pipeline
from retrieval_core.testing.fakes import FakeEmbedder
from support.pinecone_service import KEY as PINECONE_KEY
from support.pinecone_service import PineconeService
from support.qdrant_service import KEY as QDRANT_KEY
from support.qdrant_service import QdrantService
from support.wire_server import WireServer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from retrieval_core import Index

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
DIMENSION = 64
QUERY = "How far away is the moon?"
TEXT = "The moon is far away."
VECTOR = [1.0, *[0.5] * (DIMENSION - 1)]
CHUNKS = [Chunk("moon", "moon.md", "The moon is far away."), Chunk("sun", "sun.md", "The sun is farther away.")]


Correct: TypeAlias = "Callable[[str], object]"
"""Writes another text into the only record, with the vendor's own client."""


@contextmanager
def at_pinecone() -> Generator[tuple[Index, Correct]]:
    """Yield an index at Pinecone that another program filled, and a function that corrects its text."""
    with WireServer(PineconeService(DIMENSION)) as server, Pinecone(api_key=PINECONE_KEY) as client:
        theirs = client.Index(host=server.url)

        def write(text: str) -> None:
            theirs.upsert(vectors=[{"id": "1", "values": VECTOR, "metadata": {"text": text}}], namespace="n")

        settings = {"store.kind": "pinecone", "store.pinecone.host": server.url, "store.pinecone.namespace": "n"}
        config = load_config(overrides=settings, environment={"PINECONE_API_KEY": PINECONE_KEY})
        write(TEXT)
        with open_index(config=config, embedder=FakeEmbedder(DIMENSION)) as index:
            yield index, write
        theirs.close()


@contextmanager
def at_qdrant() -> Generator[tuple[Index, Correct]]:
    """Yield a collection of Qdrant that another program filled, and a function that corrects its text."""
    with WireServer(QdrantService()) as server:
        client = QdrantClient(url=server.url, api_key=QDRANT_KEY, check_compatibility=False)
        size = models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE)
        client.create_collection("theirs", vectors_config=size)

        def write(text: str) -> None:
            client.upsert("theirs", [models.PointStruct(id=1, vector=VECTOR, payload={"text": text})])

        settings = {
            "store.kind": "qdrant",
            "store.qdrant.url": server.url,
            "store.qdrant.collection": "theirs",
            "store.qdrant.fields": "default",
        }
        config = load_config(overrides=settings, environment={"QDRANT_API_KEY": QDRANT_KEY})
        write(TEXT)
        with open_index(config=config, embedder=FakeEmbedder(DIMENSION)) as index:
            yield index, write
        client.close()


@pytest.mark.parametrize("service", [at_pinecone, at_qdrant])
def test_what_another_program_corrects_is_found_at_once(service: Any) -> None:
    """The cache is on by default, and is not used: these stores do not report changes."""
    with service() as (index, correct):
        assert [hit.chunk.text for hit in index.retrieve(QUERY, mode="dense").hits] == [TEXT]
        assert not index.retrieve(QUERY, mode="dense").from_cache
        correct("The moon is near.")
        assert [hit.chunk.text for hit in index.retrieve(QUERY, mode="dense").hits] == ["The moon is near."]


def test_the_specifications_pipeline_caches_at_pinecone() -> None:
    """Asked twice within the time to live it answers from the cache; without a cache, or after clear(), it searches."""
    with at_pinecone() as (index, correct):

        def made(cache: pipeline.CacheConfig) -> pipeline.RetrievalPipeline:
            search = pipeline.SearchConfig(score_threshold=0.0)
            config = pipeline.RetrievalConfig(search_config=search, cache_config=cache)
            return pipeline.RetrievalPipeline(config, embeddings_model=index.embedder, vector_store=index.store)

        cached, fresh = made(pipeline.CacheConfig()), made(pipeline.CacheConfig(enabled=False))
        first, second = cached.retrieve(QUERY), cached.retrieve(QUERY)
        assert (first.from_cache, second.from_cache, second.documents) == (False, True, first.documents)
        assert [fresh.retrieve(QUERY).from_cache for _ in range(2)] == [False, False]
        correct("The moon is near.")
        assert cached.retrieve(QUERY).from_cache
        cached.cache.clear()
        for asked in (cached, fresh):
            assert [document.page_content for document in asked.retrieve(QUERY).documents] == ["The moon is near."]
        cached.close()
        fresh.close()


def test_an_index_file_is_cached_until_something_is_written(tmp_path: Path) -> None:
    """SQLite reports a version, so its results are cached, and never served after a change."""
    with open_index(tmp_path / "i.db", embedder=FakeEmbedder(DIMENSION)) as index:
        index.add(CHUNKS)
        first, second = index.retrieve(QUERY), index.retrieve(QUERY)
        assert (first.from_cache, second.from_cache) == (False, True)
        index.delete("moon.md")
        assert [hit.id for hit in index.retrieve(QUERY).hits] == ["sun"]


def test_results_of_several_indexes_are_cached_too(tmp_path: Path) -> None:
    """A query that wants no cached result gets a new one."""
    files = {name: tmp_path / f"{name}.db" for name in ("one", "two")}
    for name, file in files.items():
        with open_index(file, embedder=FakeEmbedder()) as index:
            index.add([Chunk(name, name, TEXT)])
    with open_indexes(files, embedder=FakeEmbedder()) as indexes:
        cached = [indexes.retrieve(QUERY, use_cache=wanted).from_cache for wanted in (False, None, None, False, True)]
    assert cached == [False, False, True, False, True]
