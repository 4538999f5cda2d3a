"""The default store: one SQLite file, searched by words through FTS5 and by vectors through numpy."""

from retrieval_core.adapters.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
