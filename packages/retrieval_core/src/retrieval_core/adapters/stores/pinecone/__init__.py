"""The Pinecone store, for our own indexes and for those that other programs filled."""

from retrieval_core.adapters.stores.pinecone.store import PineconeStore

__all__ = ["PineconeStore"]
