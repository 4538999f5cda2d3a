"""Stores: in memory, SQLite, LanceDB and Pinecone."""
