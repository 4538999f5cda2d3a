"""The store for several machines: a schema of a PostgreSQL database, with pgvector."""

from retrieval_core.adapters.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
