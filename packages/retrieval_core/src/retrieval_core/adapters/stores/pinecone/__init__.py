"""A store at Pinecone: our own index there, or one that others filled."""

from retrieval_core.adapters.stores.pinecone.store import PineconeStore

__all__ = ["PineconeStore"]
