"""The store for large collections: a folder that LanceDB keeps, with indexes on the disk."""

from retrieval_core.adapters.stores.lancedb.store import LanceDBStore

__all__ = ["LanceDBStore"]
