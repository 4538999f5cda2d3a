"""Haystack's pipeline for hybrid retrieval: BM25 over its store in memory, its Faiss store, and reciprocal rank fusion.

Faiss compares all vectors. The store in memory, which makes an array of all vectors for every question, would be many
times slower with them, but it is the only one with words that needs no server. Faiss applies filters after its limit.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.collection import TOP_K

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.collection import Collection, Question


class System:
    """One pipeline over two stores in memory."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        del place, settings
        self._collection = collection
        self._haystack: Any = import_module("haystack")
        self._memory: Any = import_module("haystack.document_stores.in_memory").InMemoryDocumentStore
        self._by_words: Any = import_module("haystack.components.retrievers.in_memory").InMemoryBM25Retriever
        self._joiner: Any = import_module("haystack.components.joiners").DocumentJoiner
        self._faiss: Any = import_module("haystack_integrations.document_stores.faiss").FAISSDocumentStore
        retrievers = import_module("haystack_integrations.components.retrievers.faiss")
        self._by_meaning: Any = retrievers.FAISSEmbeddingRetriever

    def load(self) -> None:
        """Write to both stores."""
        texts = self._collection.texts()
        document = self._haystack.Document
        limit = self._collection.candidates
        words, meaning = self._memory(), self._faiss(embedding_dim=self._collection.dimension)
        words.write_documents([document(id=str(row), content=text) for row, text in enumerate(texts)])
        meaning.write_documents(
            [
                document(id=str(row), content=text, embedding=vector.tolist())
                for row, (text, vector) in enumerate(zip(texts, self._collection.vectors, strict=True))
            ]
        )
        pipeline = self._haystack.Pipeline()
        pipeline.add_component("words", self._by_words(document_store=words, top_k=limit))
        pipeline.add_component("meaning", self._by_meaning(document_store=meaning, top_k=limit))
        pipeline.add_component("joiner", self._joiner(join_mode="reciprocal_rank_fusion", top_k=TOP_K))
        pipeline.connect("words", "joiner")
        pipeline.connect("meaning", "joiner")
        self._pipeline: Any = pipeline

    def open(self) -> None:
        """Do nothing: everything is in memory."""

    def search(self, question: Question) -> list[int]:
        """Search."""
        return _rows(self._pipeline.run(_inputs(question)))

    async def asearch(self, question: Question) -> list[int]:
        """Search on an event loop."""
        return _rows(await self._pipeline.run_async(_inputs(question)))

    def close(self) -> None:
        """Do nothing."""


def _inputs(question: Question) -> dict[str, Any]:
    return {"words": {"query": question.text}, "meaning": {"query_embedding": question.vector.tolist()}}


def _rows(found: dict[str, Any]) -> list[int]:
    return [int(document.id) for document in found["joiner"]["documents"] if document.content]
