"""A vector store of LlamaIndex over any store of retrieval-core."""

from llama_index.embeddings.retrieval_core import RetrievalCoreEmbedding  # its place in earlier versions
from llama_index.vector_stores.retrieval_core.store import RetrievalCoreVectorStore

__all__ = ["RetrievalCoreEmbedding", "RetrievalCoreVectorStore"]
