"""Index files that several threads open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")


from llama_index.core import MockEmbedding
from llama_index.core.schema import (
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_index.vector_stores.retrieval_core import RetrievalCoreVectorStore, index_file
from retrieval_core.adapters.registry import build_store
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from retrieval_core.ports import Store

MODES = VectorStoreQueryMode


def node(
    name: str, text: str, vector: Sequence[float] = (1.0, 0.0), document: str | None = None, **metadata: Any
) -> TextNode:
    source = {} if document is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
    return TextNode(id_=name, text=text, embedding=list(vector), metadata=metadata, relationships=source)


NODES = [
    node("a", "lorem ipsum moon", (1.0, 0.0), "d0", weight=1.0, rank="a"),
    node("b", "lorem ipsum sun", (0.0, 1.0), "d1", weight=2.0, rank="c"),
    node("c", "lorem ipsum", (1.0, 1.0), "d2", weight=3.0, rank="c"),
]


def asked(mode: str = "default", **arguments: Any) -> VectorStoreQuery:
    given: dict[str, Any] = {"query_embedding": [1.0, 1.0], "query_str": "lorem", "similarity_top_k": 3}
    return VectorStoreQuery(mode=MODES(mode), **{**given, **arguments})


def memory() -> MemoryStore:
    return MemoryStore(embedder_id="m", dimension=2)


@pytest.fixture(params=["memory", "sqlite", "lancedb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RetrievalCoreVectorStore]:
    """A vector store over each store that is on this machine, with three nodes."""
    own: Store
    if request.param == "memory":
        own = memory()
    elif request.param == "sqlite":
        own = SqliteStore(tmp_path / "index.db", embedder_id="m", dimension=2)
    else:
        pytest.importorskip("lancedb")
        from retrieval_core.adapters.stores.lancedb import LanceDBStore

        own = LanceDBStore(tmp_path / "index.lance", embedder_id="m", dimension=2)
    with RetrievalCoreVectorStore(own) as opened:
        opened.add(NODES)
        yield opened
        opened._bridge.run(own.aclose())


def test_queries_that_open_an_index_at_the_same_time_keep_none_but_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others opened is closed at once: who holds a store for long holds its files and threads."""
    made: list[Store] = []
    closed: list[Store] = []

    def build(*given: Any, **settings: Any) -> Store:
        store = build_store(*given, **settings)
        aclose = store.aclose

        async def noted() -> None:
            closed.append(store)
            await aclose()

        object.__setattr__(store, "aclose", noted)
        made.append(store)
        return store

    async def ask() -> None:
        async with RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db") as store:
            await asyncio.gather(*(store.aquery(asked()) for _ in range(20)))
        assert len(made) > 2  # they did meet
        assert {id(store) for store in made} == {id(store) for store in closed}

    with RetrievalCoreVectorStore.from_index_file(tmp_path / "x.db", embed_model=MockEmbedding(embed_dim=2)) as store:
        store.add(NODES)
    monkeypatch.setattr(index_file, "build_store", build)
    asyncio.run(ask())
