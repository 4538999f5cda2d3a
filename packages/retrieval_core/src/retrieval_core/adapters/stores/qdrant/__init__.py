"""The Qdrant store, which needs the extra ``qdrant``."""

from retrieval_core.adapters.stores.qdrant.store import QdrantStore

__all__ = ["QdrantStore"]
