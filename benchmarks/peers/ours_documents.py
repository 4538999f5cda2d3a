"""This library as a user has it: it cuts documents itself, embeds them, and searches with its defaults.

``retrieval-core-reranked`` also asks the local reranker. Vectors of passages are kept from one run to the next, and
those of questions are there before, so that times are without embedding. Passages are asked for until they come from
ten documents; that changes nothing in their order.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.collection import TOP_K, Written
from benchmarks.peers.ours import vectors_of_questions
from benchmarks.vectors import KeptVectors
from retrieval_core import load_config, open_index
from retrieval_core.types import Document, content_hash

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.collection import Collection, Question
    from retrieval_core.index.index import Index
    from retrieval_core.types import Vector

PASSAGES = 3 * TOP_K
PATIENCE = 600
"""Seconds for a question: on a busy machine, too, the whole answer is measured."""


class Embedder(KeptVectors):
    """The local model, with the questions' vectors at hand."""

    def __init__(self, folder: Path, collection: Collection) -> None:
        super().__init__(folder)
        self._questions = vectors_of_questions(collection)

    async def embed_query(self, text: str) -> Vector:
        """Return a question's vector."""
        return self._questions[text]


class System:
    """An index file."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        assert isinstance(collection, Written)
        self._collection = collection
        self._place = place
        self._settings: dict[str, Any] = {"cache.kind": "none", "deadline_seconds": PATIENCE}
        self._settings["reranker.kind"] = "local" if settings["system"] == "retrieval-core-reranked" else "none"
        self._settings |= {name: value for name, value in settings.items() if name not in {"system", "vectors"}}
        self._vectors = Path(settings["vectors"])
        self._index: Index | None = None

    def load(self) -> None:
        """Add all documents."""
        with self._opened() as index:
            index.add_documents(
                Document(f"{row}", text, "corpus.jsonl", content_hash(text), title or None)
                for row, (title, text) in enumerate(self._collection.documents)
            )

    def open(self) -> None:
        """Open what was loaded."""
        self._index = self._opened()

    def search(self, question: Question) -> list[int]:
        """Search."""
        assert self._index is not None
        found = self._index.retrieve(question.text, top_k=PASSAGES, mode=question.mode, syntax=False)
        if found.degraded:
            msg = f"an answer is not complete: {found.degraded}"
            raise RuntimeError(msg)
        return [*dict.fromkeys(int(hit.chunk.document_id) for hit in found.hits)]

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()

    def _opened(self) -> Index:
        embedder = Embedder(self._vectors, self._collection)  # each index closes its own
        return open_index(self._place / "index", config=load_config(overrides=self._settings), embedder=embedder)
