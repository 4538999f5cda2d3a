"""A LlamaIndex retriever that asks a retrieval-core pipeline, and the conversions between both libraries' values."""

from llama_index.retrievers.retrieval_core.convert import (
    NodeHit,
    PassageNode,
    chunk_from_node,
    hit_from_node,
    node_from_chunk,
    node_from_hit,
)
from llama_index.retrievers.retrieval_core.events import RetrievalDegradedEvent
from llama_index.retrievers.retrieval_core.filters import as_filter, from_metadata_filters
from llama_index.retrievers.retrieval_core.order import chunks_from_nodes
from llama_index.retrievers.retrieval_core.query import RetrievalQueryBundle
from llama_index.retrievers.retrieval_core.retriever import RetrievalCoreRetriever

__all__ = [
    "NodeHit",
    "PassageNode",
    "RetrievalCoreRetriever",
    "RetrievalDegradedEvent",
    "RetrievalQueryBundle",
    "as_filter",
    "chunk_from_node",
    "chunks_from_nodes",
    "from_metadata_filters",
    "hit_from_node",
    "node_from_chunk",
    "node_from_hit",
]
