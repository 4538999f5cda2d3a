"""Vector stores of LlamaIndex with the vendors' own clients: in this process, or against a local wire server."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.vector_stores import SimpleVectorStore

from support.llamaindex_parts import DIMENSION

if TYPE_CHECKING:
    from collections.abc import Generator

    from llama_index.core.vector_stores.types import BasePydanticVectorStore

KEEP_TEXT = ("chroma", "qdrant", "pinecone")
KINDS = ("simple", *KEEP_TEXT)


@contextmanager
def opened(kind: str) -> Generator[BasePydanticVectorStore]:
    """Open an empty vector store; a test is skipped if its package is not installed."""
    if kind == "simple":
        yield SimpleVectorStore()
    elif kind == "chroma":
        chromadb: Any = pytest.importorskip("chromadb")
        chroma: Any = pytest.importorskip("llama_index.vector_stores.chroma")
        client = chromadb.EphemeralClient(chromadb.config.Settings(anonymized_telemetry=False))
        name = f"nodes-{uuid.uuid4()}"
        yield chroma.ChromaVectorStore(
            chroma_collection=client.create_collection(name, metadata={"hnsw:space": "cosine"})
        )
        client.delete_collection(name)
    elif kind == "qdrant":
        clients: Any = pytest.importorskip("qdrant_client")
        client = clients.QdrantClient(":memory:")
        yield _qdrant(client=client)
        client.close()
    elif kind == "pinecone":
        with pinecone() as (_, store):
            yield store
    else:
        raise ValueError(kind)


@contextmanager
def pinecone() -> Generator[tuple[Any, BasePydanticVectorStore]]:
    """Open an empty Pinecone store with the wire server that it talks to."""
    sdk: Any = pytest.importorskip("pinecone")
    stores: Any = pytest.importorskip("llama_index.vector_stores.pinecone")
    from support.pinecone_service import KEY, PineconeService
    from support.wire_server import WireServer

    with WireServer(PineconeService(DIMENSION, "cosine")) as server:
        client = sdk.Pinecone(api_key=KEY).Index(host=server.url)
        yield server, stores.PineconeVectorStore(pinecone_index=client, insert_kwargs={"show_progress": False})
        client.close()


def async_qdrant() -> BasePydanticVectorStore:
    """Return an empty Qdrant store that has an asynchronous client only."""
    clients: Any = pytest.importorskip("qdrant_client")
    return _qdrant(aclient=clients.AsyncQdrantClient(":memory:"))


def _qdrant(**client: Any) -> BasePydanticVectorStore:
    stores: Any = pytest.importorskip("llama_index.vector_stores.qdrant")
    return stores.QdrantVectorStore("nodes", **client)
