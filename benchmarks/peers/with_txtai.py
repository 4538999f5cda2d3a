"""txtai's hybrid index, with its defaults: Faiss (an IVF index from 5,001 passages on) and its own BM25.

It has ten candidates a side for each hit, so a hundred here. Its content store is left out, which makes it quicker; the
texts are looked up by id instead, and filters, which need that store, cannot be asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.collection import TOP_K

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.collection import Collection, Floats, Question


class System:
    """One embeddings database in memory."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        del place, settings
        self._collection = collection
        self._embeddings: Any = import_module("txtai").Embeddings

    def load(self) -> None:
        """Index everything."""
        self._texts = self._collection.texts()
        known = dict(zip(self._texts, self._collection.vectors, strict=True))

        def vectors(texts: Sequence[str]) -> Floats:
            return np.stack([known[text] for text in texts])

        self._index: Any = self._embeddings({"method": "external", "transform": vectors, "hybrid": True})
        self._index.index(enumerate(self._texts))
        # Only now: a question that has a passage's very words has another vector.
        known |= zip(self._collection.question_texts, self._collection.question_vectors, strict=True)

    def open(self) -> None:
        """Do nothing: everything is in memory."""

    def search(self, question: Question) -> list[int]:
        """Search."""
        found: list[tuple[int, float]] = self._index.search(question.text, TOP_K)
        return [row for row, _ in found if self._texts[row]]

    def close(self) -> None:
        """Close it."""
        self._index.close()
