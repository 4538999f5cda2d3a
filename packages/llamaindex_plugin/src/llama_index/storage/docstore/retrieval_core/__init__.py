"""A read-only document store of LlamaIndex over any store of retrieval-core."""

from llama_index.storage.docstore.retrieval_core.docstore import RetrievalCoreDocumentStore

__all__ = ["RetrievalCoreDocumentStore"]
