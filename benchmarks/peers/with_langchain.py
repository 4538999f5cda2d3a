"""LangChain's ensemble of its BM25 retriever and a Faiss store in memory, as its documentation combines them.

Faiss compares all vectors. The vector store of LangChain's own, which makes an array of all vectors for every question,
would be many times slower. BM25 knows no filter, and Faiss applies one after its limit.
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
    """One ensemble in memory."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        del place, settings
        self._collection = collection
        self._embeddings: Any = import_module("langchain_core.embeddings").Embeddings
        self._faiss: Any = import_module("langchain_community.vectorstores").FAISS
        self._strategy: Any = import_module("langchain_community.vectorstores.utils").DistanceStrategy
        self._bm25: Any = import_module("langchain_community.retrievers").BM25Retriever
        self._ensemble: Any = import_module("langchain_classic.retrievers").EnsembleRetriever

    def load(self) -> None:
        """Make both retrievers."""
        texts = self._collection.texts()
        rows = [{"row": row} for row in range(len(texts))]
        known = dict(zip(self._collection.question_texts, self._collection.question_vectors, strict=True))

        class Known(self._embeddings):
            def embed_documents(self, texts: list[str]) -> Any:
                raise NotImplementedError

            def embed_query(self, text: str) -> Any:
                return known[text]

            async def aembed_query(self, text: str) -> Any:
                return known[text]

        store = self._faiss.from_embeddings(
            zip(texts, self._collection.vectors, strict=True),
            Known(),
            metadatas=rows,
            distance_strategy=self._strategy.MAX_INNER_PRODUCT,
        )
        words = self._bm25.from_texts(texts, metadatas=rows, k=self._collection.candidates)
        meaning = store.as_retriever(search_kwargs={"k": self._collection.candidates})
        self._retriever: Any = self._ensemble(retrievers=[words, meaning], weights=[0.5, 0.5], id_key="row")

    def open(self) -> None:
        """Do nothing: everything is in memory."""

    def search(self, question: Question) -> list[int]:
        """Search."""
        return _rows(self._retriever.invoke(question.text))

    async def asearch(self, question: Question) -> list[int]:
        """Search on an event loop."""
        return _rows(await self._retriever.ainvoke(question.text))

    def close(self) -> None:
        """Do nothing."""


def _rows(found: list[Any]) -> list[int]:
    return [document.metadata["row"] for document in found[:TOP_K] if document.page_content]
