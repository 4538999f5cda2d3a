"""``from_index`` over a custom vector store: one client only, no reading by ID, and no connection."""

from __future__ import annotations

import asyncio
import logging
from operator import mul
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryResult

from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever
from llama_index.retrievers.retrieval_core.adapters import from_index
from retrieval_core.errors import SearchError
from support.llamaindex_parts import WordEmbedding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from retrieval_core import RetrievalPipeline

TEXTS = {"moon": "The moon is bright at night.", "sun": "The sun is a star.", "bread": "Bread is baked."}


class Tiny(BasePydanticVectorStore):
    """Keeps nodes with their text, as most vector stores do."""

    stores_text: bool = True
    _nodes: dict[str, BaseNode] = PrivateAttr(default_factory=dict)

    @property
    def client(self) -> Any:
        return None

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        self._nodes |= {node.node_id: node for node in nodes}
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        self._nodes = {name: node for name, node in self._nodes.items() if node.ref_doc_id != ref_doc_id}

    def best(self, query: VectorStoreQuery) -> VectorStoreQueryResult:
        asked = query.query_embedding or []
        scored = sorted(
            ((sum(map(mul, asked, node.get_embedding())), name) for name, node in self._nodes.items()),
            reverse=True,
        )[: query.similarity_top_k]
        return VectorStoreQueryResult(
            nodes=[self._nodes[name] for _, name in scored],
            similarities=[score for score, _ in scored],
            ids=[name for _, name in scored],
        )

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        return self.best(query)


class AsyncOnly(Tiny):
    """Was made with an asynchronous client, and says so as many stores do."""

    _sync_calls: int = PrivateAttr(default=0)

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        self._sync_calls += 1
        raise ValueError("no synchronous client; give client=")

    async def aquery(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        await asyncio.sleep(0)
        return self.best(query)


class RefusesBoth(AsyncOnly):
    """Cannot be queried with either method."""

    async def aquery(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        raise ValueError("no asynchronous client; give aclient=")


class NoReading(Tiny):
    """Has a ``get_nodes`` that only says that there is none."""

    _readings: int = PrivateAttr(default=0)

    def get_nodes(self, node_ids: list[str] | None = None, filters: Any = None) -> list[BaseNode]:
        self._readings += 1
        raise NotImplementedError("get_nodes is not implemented")

    @property
    def readings(self) -> int:
        return self._readings


class Dead(Tiny):
    """Nobody answers."""

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        raise ConnectionRefusedError("nobody at 10.0.0.1")


def opened(store: Tiny) -> RetrievalPipeline:
    """Return a pipeline over an index whose nodes are in a document store, too."""
    nodes = [TextNode(id_=name, text=text) for name, text in TEXTS.items()]
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    context = StorageContext.from_defaults(vector_store=store, docstore=docstore)
    return from_index(VectorStoreIndex(nodes, storage_context=context, embed_model=WordEmbedding()))


@pytest.mark.parametrize("mode", ["dense", "hybrid"])
def test_a_synchronous_query_of_a_store_that_refuses_with_a_value_error(mode: Any) -> None:
    """The asynchronous client is used, also where an event loop is running."""
    with opened(AsyncOnly()) as pipeline:
        retriever = RetrievalCoreRetriever(pipeline, top_k=1, mode=mode)

        async def inside() -> list[Any]:
            return [*retriever.retrieve("bright moon"), *await retriever.aretrieve("bright moon")]

        found: list[Any] = [*retriever.retrieve("bright moon"), *asyncio.run(inside())]
    assert [(item.node.node_id, item.degraded) for item in found] == [("moon", [])] * 3


def test_if_both_clients_refuse_both_refusals_are_told() -> None:
    """The caller used the synchronous method, whose error comes first."""
    told = r"dense: RefusesBoth failed: ValueError: no synchronous client.*ValueError: no asynchronous client"
    with opened(RefusesBoth()) as pipeline, pytest.raises(SearchError, match=told):
        RetrievalCoreRetriever(pipeline, mode="dense").retrieve("bright moon")


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_keyword_search_without_reading_by_id(mode: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The docstore's nodes are used, and the store is not asked again."""
    store = NoReading()
    with opened(store) as pipeline, caplog.at_level(logging.WARNING):
        retriever = RetrievalCoreRetriever(pipeline, top_k=1, mode=mode)
        found: list[Any] = [
            item for query in ("bright moon", "a star", "baked bread") for item in retriever.retrieve(query)
        ]
    assert [item.node.node_id for item in found] == ["moon", "sun", "bread"]
    assert [item.degraded for item in found] == [[], [], []]
    assert store.readings == 1
    assert caplog.messages == []


def test_a_dead_side_is_named_if_the_other_one_finds_nothing() -> None:
    """An empty list would say that nothing is there."""
    with opened(Dead()) as pipeline:
        retriever = RetrievalCoreRetriever(pipeline, mode="hybrid")
        found: list[Any] = retriever.retrieve("bright moon")
        assert found[0].degraded
        with pytest.raises(SearchError, match=r"dense: Dead failed: .*10\.0\.0\.1"):
            retriever.retrieve("zebra")
