"""Embedders of retrieval-core as embedding models of LlamaIndex; by default one that runs on this machine."""

from llama_index.embeddings.retrieval_core.base import RetrievalCoreEmbedding

__all__ = ["RetrievalCoreEmbedding"]
