"""The default store: one SQLite file, with exact keyword and vector search."""

from retrieval_core.adapters.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
