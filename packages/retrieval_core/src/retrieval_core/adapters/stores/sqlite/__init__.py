"""The default store: one SQLite file, with lexical search by FTS5 and dense search by numpy."""

from retrieval_core.adapters.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
