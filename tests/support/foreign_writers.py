"""Collections that LangChain, LlamaIndex and Haystack write: two documents, cut by each library's own splitter.

A function needs the library that it is named after, and returns what it wrote: the texts of the chunks.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qdrant_client import QdrantClient

DIMENSION = 64
COLLECTION = "docs"
FLAT: Mapping[str, Any] = {"source": "guide.md", "year": 2020, "day": "2020-05-01", "tags": ["net", "ufw"], "ok": True}
"""Metadata that every service takes."""
NESTED: Mapping[str, Any] = {**FLAT, "none": None, "numbers": [1, 2], "author": {"name": "Ann", "age": 41}}
"""Metadata that only Qdrant takes."""
GUIDE = (
    "Ports are opened with the firewall command. Each rule names a port. "
    "A rule that is deleted closes its port at once. Logs say which rule refused a packet."
)
MANUAL = "Backups run every night. Restore one with the restore command."
OTHER: Mapping[str, Any] = {"source": "manual.md", "year": 2021, "tags": ["disk"], "ok": False}
TEXTS = (GUIDE, MANUAL)


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Return the vectors of texts."""
    return asyncio.run(FakeEmbedder(DIMENSION).embed_texts(list(texts))).tolist()


def _langchain(metadata: Mapping[str, Any]) -> tuple[list[Any], Any]:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    class Ours(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return embed(texts)

        def embed_query(self, text: str) -> list[float]:
            return embed([text])[0]

    splitter = RecursiveCharacterTextSplitter(
        chunk_size=80, chunk_overlap=0, separators=[". "], keep_separator="end", add_start_index=True
    )
    documents = [Document(GUIDE, metadata=dict(metadata)), Document(MANUAL, metadata=dict(OTHER))]
    return splitter.split_documents(documents), Ours()


def langchain_qdrant(client: QdrantClient) -> list[str]:
    """Write by ``langchain-qdrant``."""
    from langchain_qdrant import QdrantVectorStore
    from qdrant_client import models

    chunks, embeddings = _langchain(NESTED)
    client.create_collection(COLLECTION, models.VectorParams(size=DIMENSION, distance=models.Distance.COSINE))
    QdrantVectorStore(client, COLLECTION, embeddings).add_documents(chunks)
    return [chunk.page_content for chunk in chunks]


def langchain_postgres(url: str, *, embedding_length: int | None = None) -> tuple[str, list[str]]:
    """Write by ``PGVector`` of ``langchain-postgres``; return the table too, as all writers to PostgreSQL do."""
    from langchain_postgres import PGVector

    chunks, embeddings = _langchain(NESTED)
    store: Any = PGVector(
        embeddings, connection=_sqlalchemy(url), collection_name=COLLECTION, embedding_length=embedding_length
    )
    store.add_documents(chunks)
    store._engine.dispose()
    return "langchain_pg_embedding", [chunk.page_content for chunk in chunks]


def langchain_table_postgres(url: str) -> tuple[str, list[str]]:
    """Write by ``PGVectorStore`` of ``langchain-postgres``, with a field of the metadata as a column."""
    from langchain_postgres import Column, PGEngine, PGVectorStore

    chunks, embeddings = _langchain(NESTED)
    engine = PGEngine.from_connection_string(_sqlalchemy(url))
    engine.init_vectorstore_table(COLLECTION, DIMENSION, metadata_columns=[Column("year", "integer")])
    store: Any = PGVectorStore.create_sync(engine, embeddings, COLLECTION, metadata_columns=["year"])
    store.add_documents(chunks)
    asyncio.run_coroutine_threadsafe(engine.close(), engine._loop).result()  # pyright: ignore[reportArgumentType]
    return COLLECTION, [chunk.page_content for chunk in chunks]


def _sqlalchemy(url: str, driver: str = "psycopg") -> str:
    return url.replace("postgresql:", f"postgresql+{driver}:", 1)


def langchain_pinecone(url: str, key: str) -> list[str]:
    """Write what ``langchain-pinecone`` 0.2.13 wrote to the service of these tests.

    It needs a client of Pinecone older than this library's, so it is not installed beside it.
    """
    from pinecone import Pinecone

    chunks, embeddings = _langchain(FLAT)
    texts = [chunk.page_content for chunk in chunks]
    index = Pinecone(api_key=key).Index(host=url)
    records = [
        {"id": str(uuid4()), "values": vector, "metadata": {**chunk.metadata, "text": chunk.page_content}}
        for chunk, vector in zip(chunks, embeddings.embed_documents(texts), strict=True)
    ]
    index.upsert(vectors=records, show_progress=False)
    index.close()
    return texts


def _llamaindex(metadata: Mapping[str, Any]) -> list[Any]:
    from llama_index.core import Document
    from llama_index.core.node_parser import TokenTextSplitter

    hidden: dict[str, Any] = {"excluded_embed_metadata_keys": [*metadata], "excluded_llm_metadata_keys": [*metadata]}
    documents = [
        Document(text=GUIDE, doc_id="guide", metadata=dict(metadata), **hidden),
        Document(text=MANUAL, doc_id="manual", metadata=dict(OTHER), **hidden),
    ]
    splitter = TokenTextSplitter(chunk_size=12, chunk_overlap=0, tokenizer=str.split)
    nodes = splitter.get_nodes_from_documents(documents)
    for node, vector in zip(nodes, embed([node.get_content() for node in nodes]), strict=True):
        node.embedding = vector
    return nodes


def llamaindex_qdrant(client: QdrantClient, **options: Any) -> list[str]:
    """Write by ``llama-index-vector-stores-qdrant``."""
    from llama_index.vector_stores.qdrant import QdrantVectorStore

    nodes = _llamaindex(NESTED)
    QdrantVectorStore(COLLECTION, client=client, **options).add(nodes)
    return [node.get_content() for node in nodes]


def llamaindex_postgres(url: str, **options: Any) -> tuple[str, list[str]]:
    """Write by ``llama-index-vector-stores-postgres``."""
    from llama_index.vector_stores.postgres import PGVectorStore

    nodes = _llamaindex(NESTED)
    store = PGVectorStore(
        connection_string=_sqlalchemy(url, "psycopg2"),
        async_connection_string=_sqlalchemy(url, "asyncpg"),
        table_name=COLLECTION,
        embed_dim=DIMENSION,
        **options,
    )
    store.add(nodes)
    asyncio.run(store.close())
    return f"data_{COLLECTION}", [node.get_content() for node in nodes]


def llamaindex_pinecone(url: str, key: str, **options: Any) -> list[str]:
    """Write by ``llama-index-vector-stores-pinecone``."""
    from llama_index.vector_stores.pinecone import PineconeVectorStore
    from pinecone import Pinecone

    nodes = _llamaindex(FLAT)
    index = Pinecone(api_key=key).Index(host=url)
    PineconeVectorStore(pinecone_index=index, **options).add(nodes)
    index.close()
    return [node.get_content() for node in nodes]


def _haystack(metadata: Mapping[str, Any]) -> list[Any]:
    from haystack import Document
    from haystack.components.preprocessors import DocumentSplitter

    documents = [Document(content=GUIDE, meta=dict(metadata)), Document(content=MANUAL, meta=dict(OTHER))]
    chunks = DocumentSplitter(split_by="period", split_length=1).run(documents)["documents"]
    vectors = embed([chunk.content or "" for chunk in chunks])
    return [replace(chunk, embedding=vector) for chunk, vector in zip(chunks, vectors, strict=True)]


def haystack_qdrant(path: str, *, use_sparse_embeddings: bool = False) -> list[str]:
    """Write by ``qdrant-haystack``, which opens the folder itself."""
    from haystack_integrations.document_stores.qdrant import QdrantDocumentStore

    chunks = _haystack(NESTED)
    store = QdrantDocumentStore(
        path=path, index=COLLECTION, embedding_dim=DIMENSION, use_sparse_embeddings=use_sparse_embeddings
    )
    store.write_documents(chunks)
    assert store._client is not None
    store._client.close()
    return [chunk.content for chunk in chunks]


def haystack_postgres(url: str, **options: Any) -> tuple[str, list[str]]:
    """Write by ``pgvector-haystack``."""
    from haystack.utils import Secret
    from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore

    chunks = _haystack(NESTED)
    store = PgvectorDocumentStore(
        connection_string=Secret.from_token(url), table_name=COLLECTION, embedding_dimension=DIMENSION, **options
    )
    store.write_documents(chunks)
    assert store._connection is not None
    store._connection.close()
    return COLLECTION, [chunk.content for chunk in chunks]


def haystack_pinecone(url: str, key: str) -> list[str]:
    """Write by ``pinecone-haystack``, which is given the index, since it reaches one by its name only over HTTPS."""
    from haystack.utils import Secret
    from haystack_integrations.document_stores.pinecone import PineconeDocumentStore
    from pinecone import Pinecone

    chunks = _haystack(FLAT)
    store = PineconeDocumentStore(api_key=Secret.from_token(key), index=COLLECTION, dimension=DIMENSION, namespace="")
    index: Any = Pinecone(api_key=key).Index(host=url)
    store._index, store._dummy_vector = index, [-10.0] * DIMENSION
    store.write_documents(chunks)
    index.close()
    return [chunk.content for chunk in chunks]
