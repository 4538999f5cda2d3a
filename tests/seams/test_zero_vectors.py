"""Vectors of zeros, which are equally far from everything, are refused wherever they enter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core import Chunk, Index, open_index
from retrieval_core.config import load_config
from retrieval_core.errors import EmbeddingError, InvalidParameterError
from retrieval_core.ports import Change, SearchRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

DIMENSION = 4


class FaultyEmbedder:
    """Gives a vector of zeros for the texts that contain a word, as some services do for texts that they block."""

    id = "faulty"
    dimension = DIMENSION

    def embed_query(self, text: str) -> list[float]:
        return self.embed_texts([text])[0]

    def embed_texts(self, texts: Sequence[str]) -> list[list[float]]:
        return [[0.0] * DIMENSION if "blocked" in text else [1.0, float(len(text)), 2.0, 3.0] for text in texts]


@pytest.fixture(params=["memory", "sqlite", "lancedb"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Index]:
    """An index of one chunk, in each store that needs no service."""
    if request.param == "lancedb":
        pytest.importorskip("lancedb")
    settings = {"store.kind": request.param, "index": str(tmp_path / "index")}
    embedder: Any = FaultyEmbedder()
    with open_index(config=load_config(None, settings, {}), embedder=embedder) as opened:
        opened.add([Chunk("fine", "a", "a fine text")])
        yield opened


def stored(index: Index) -> int:
    return index.describe().chunks


def test_chunks_and_files_with_such_a_vector_are_not_stored(index: Index, tmp_path: Path) -> None:
    """The error names the embedder and the text, and nothing of the write is there."""
    with pytest.raises(EmbeddingError, match=r"faulty gave a vector of zeros.*'a blocked text'"):
        index.add([Chunk("b#0", "b", "another text"), Chunk("b#1", "b", "a blocked text", 1)])
    (tmp_path / "c.md").write_text("A blocked page.")
    with pytest.raises(EmbeddingError, match="vector of zeros"):
        index.ingest(tmp_path / "c.md")
    assert stored(index) == 1


def test_a_store_refuses_such_vectors_of_chunks_and_of_queries(index: Index) -> None:
    """Also those that were made elsewhere, and tiny ones that float32 holds as zeros."""

    def write(vectors: Any) -> None:
        chunks = (Chunk("a", "x", "one"), Chunk("b", "x", "two", 1))
        index.sync.run(index.store.upsert(Change(chunks=chunks, vectors=vectors)))

    def search(vector: Any) -> None:
        index.sync.run(index.store.search(SearchRequest(5, vector=vector)))

    for zeros in ([0.0] * DIMENSION, [1e-60] * DIMENSION):
        with pytest.raises(InvalidParameterError, match="chunk 'b' is all zeros"):
            write([[1.0] * DIMENSION, zeros])
        with pytest.raises(InvalidParameterError, match="the query is all zeros"):
            search(zeros)
    assert stored(index) == 1


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_query_with_such_a_vector_is_answered_by_keywords(index: Index, mode: Any) -> None:
    """The result says why."""
    result = index.retrieve("blocked text", mode=mode)
    assert [hit.chunk.id for hit in result.hits] == ["fine"]
    assert any("zeros" in entry.reason for entry in result.degraded)


def test_the_vector_store_of_llamaindex_refuses_them(tmp_path: Path) -> None:
    """Nodes and queries, through LlamaIndex's own interface."""
    pytest.importorskip("llama_index.vector_stores.retrieval_core")
    from llama_index.core import MockEmbedding
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore

    model = MockEmbedding(embed_dim=DIMENSION)
    with RetrievalCoreVectorStore.from_index_file(str(tmp_path / "index.db"), embed_model=model) as store:
        store.add([TextNode(id_="fine", text="a fine text", embedding=[1.0] * DIMENSION)])
        with pytest.raises(InvalidParameterError, match="'bad' is all zeros"):
            store.add([TextNode(id_="bad", text="another text", embedding=[0.0] * DIMENSION)])
        with pytest.raises(InvalidParameterError, match="the query is all zeros"):
            store.query(VectorStoreQuery(query_embedding=[0.0] * DIMENSION, similarity_top_k=3))
        assert [node.node_id for node in store.get_nodes()] == ["fine"]
