"""Parts of LlamaIndex for tests of the adapters: a model that embeds words, and an index over a few passages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.schema import NodeRelationship, ObjectType, RelatedNodeInfo, TextNode
from llama_index.core.storage.storage_context import StorageContext

from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llama_index.core.schema import BaseNode

DIMENSION = 64
PASSAGES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("moon", "The moon is bright at night.", {"kind": "moon", "year": 1969}),
    ("moon", "The moon is 384,400 km away from here.", {"kind": "moon", "year": 1970}),
    ("moon", "Apollo carried moon rocks home.", {"kind": "moon", "year": 1971, "tags": ["rocks", "old"]}),
    ("sun", "The sun is a star.", {"kind": "star"}),
    ("sun", "The sun is eight light minutes away.", {"kind": "star", "tags": ["far"]}),
    ("sea", "The sea is deep, and model XQ-77 dives there.", {"kind": "water", "year": 2020}),
)


class WordEmbedding(BaseEmbedding):
    """Embeds as :class:`FakeEmbedder` does, longer than 1, and counts how it was called; it works in the thread."""

    model_name: str = "words"
    size: int = DIMENSION
    embed_dim: int | None = None
    query_instruction: str | None = None
    _calls: list[tuple[str, list[str]]] = PrivateAttr(default_factory=list[tuple[str, list[str]]])

    @property
    def calls(self) -> list[tuple[str, list[str]]]:
        return self._calls

    def vector(self, text: str) -> list[float]:
        return [3.0 * float(number) for number in FakeEmbedder(self.size).vector(text)]

    def _get_query_embedding(self, query: str) -> list[float]:
        self._calls.append(("query", [query]))
        return self.vector(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._calls.append(("texts", list(texts)))
        return [self.vector(text) for text in texts]


def nodes(passages: Sequence[tuple[str, str, dict[str, Any]]] = PASSAGES) -> list[BaseNode]:
    """Return passages as nodes with ids ``<document>-<number>``, linked with those beside them."""
    made: list[BaseNode] = []
    for number, (document, text, metadata) in enumerate(passages):
        source = RelatedNodeInfo(node_id=document, node_type=ObjectType.DOCUMENT)
        node = TextNode(id_=f"{document}-{number}", text=text, metadata=dict(metadata))
        node.relationships[NodeRelationship.SOURCE] = source
        if made and made[-1].ref_doc_id == document:
            node.relationships[NodeRelationship.PREVIOUS] = made[-1].as_related_node_info()
            made[-1].relationships[NodeRelationship.NEXT] = node.as_related_node_info()
        made.append(node)
    return made


def index_of(model: BaseEmbedding | None = None, vector_store: Any = None, **options: Any) -> VectorStoreIndex:
    """Return an index of LlamaIndex over the passages, in memory or over a vector store."""
    context = None if vector_store is None else StorageContext.from_defaults(vector_store=vector_store)
    return VectorStoreIndex(
        options.pop("nodes", None) or nodes(), embed_model=model or WordEmbedding(), storage_context=context, **options
    )
