"""The default store: one SQLite file, with exact search by words and by vectors."""

from retrieval_core.adapters.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
