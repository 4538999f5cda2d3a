"""LlamaIndex's fusion of its BM25 retriever, which uses bm25s, and an index over Faiss.

``llamaindex`` fuses by reciprocal ranks, ``llamaindex-scores`` by scores that it brings to the same scale.

Faiss compares all vectors. LlamaIndex's own vector store, which compares them in Python, would be many times slower.
The filters of its BM25 retriever are fixed when it is made, and Faiss knows none.
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
    """One fusion retriever in memory."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        del place
        self._collection = collection
        self._mode = "relative_score" if settings["system"] == "llamaindex-scores" else "reciprocal_rerank"
        self._core: Any = import_module("llama_index.core")
        self._schema: Any = import_module("llama_index.core.schema")
        self._retrievers: Any = import_module("llama_index.core.retrievers")
        self._mocks: Any = import_module("llama_index.core.llms")
        self._bm25: Any = import_module("llama_index.retrievers.bm25").BM25Retriever
        self._store: Any = import_module("llama_index.vector_stores.faiss").FaissVectorStore
        self._faiss: Any = import_module("faiss")

    def load(self) -> None:
        """Make both retrievers."""
        texts = self._collection.texts()
        nodes = [
            self._schema.TextNode(id_=str(row), text=text, embedding=vector.tolist())
            for row, (text, vector) in enumerate(zip(texts, self._collection.vectors, strict=True))
        ]
        store = self._store(faiss_index=self._faiss.IndexFlatIP(self._collection.dimension))
        index = self._core.VectorStoreIndex(
            nodes,
            storage_context=self._core.StorageContext.from_defaults(vector_store=store),
            embed_model=self._core.MockEmbedding(embed_dim=self._collection.dimension),
        )
        words = self._bm25.from_defaults(nodes=nodes, similarity_top_k=self._collection.candidates)
        self._dense: Any = index.as_retriever(similarity_top_k=TOP_K)
        self._hybrid: Any = self._retrievers.QueryFusionRetriever(
            [index.as_retriever(similarity_top_k=self._collection.candidates), words],
            llm=self._mocks.MockLLM(),
            mode=self._mode,
            similarity_top_k=TOP_K,
            num_queries=1,
            use_async=False,  # else each synchronous question starts an event loop
        )

    def open(self) -> None:
        """Do nothing: everything is in memory."""

    def search(self, question: Question) -> list[int]:
        """Search."""
        return _rows(self._retriever(question).retrieve(self._bundle(question)))

    async def asearch(self, question: Question) -> list[int]:
        """Search on an event loop."""
        return _rows(await self._retriever(question).aretrieve(self._bundle(question)))

    def close(self) -> None:
        """Do nothing."""

    def _retriever(self, question: Question) -> Any:
        return self._dense if question.mode == "dense" else self._hybrid

    def _bundle(self, question: Question) -> Any:
        return self._schema.QueryBundle(question.text, embedding=question.vector.tolist())


def _rows(found: list[Any]) -> list[int]:
    return [int(item.node.node_id) for item in found if item.node.text]
