"""A vector store of LlamaIndex over any store of retrieval-core, and embedders as LlamaIndex's embedding models."""

from llama_index.vector_stores.retrieval_core.embedding import RetrievalCoreEmbedding
from llama_index.vector_stores.retrieval_core.store import RetrievalCoreVectorStore

__all__ = ["RetrievalCoreEmbedding", "RetrievalCoreVectorStore"]
