"""What anyone would write first: vectors in a numpy array, bm25s with a stemmer for the words, and fusion by ranks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.collection import CANDIDATES, TOP_K

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.collection import Collection, Floats, Question

RANK_CONSTANT = 60


class System:
    """Two arrays, and no guard of any kind."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        del place, settings
        self._collection = collection
        self._bm25s: Any = import_module("bm25s")
        self._stemmer: Any = import_module("Stemmer").Stemmer("english")

    def load(self) -> None:
        """Copy the vectors and index the words."""
        self._texts = self._collection.texts()
        self._vectors = np.array(self._collection.vectors)
        self._rows = np.arange(len(self._texts))
        self._words = self._bm25s.BM25()
        tokens = self._bm25s.tokenize(self._texts, stemmer=self._stemmer, show_progress=False)
        self._words.index(tokens, show_progress=False)

    def open(self) -> None:
        """Do nothing: everything is in memory."""

    def search(self, question: Question) -> list[int]:
        """Compare everything that passes."""
        passing = None if question.condition is None else question.condition.passes(self._rows)
        sides = [self._by_meaning(question.vector, passing)]
        if question.mode == "hybrid":
            sides.append(self._by_words(question.text, passing))
        fused: dict[int, float] = {}
        for side in sides:
            for rank, row in enumerate(side, start=1):
                fused[row] = fused.get(row, 0) + 1 / (RANK_CONSTANT + rank)
        best = sorted(fused, key=fused.__getitem__, reverse=True)[:TOP_K]
        return [row for row in best if self._texts[row]]

    def close(self) -> None:
        """Do nothing."""

    def _by_meaning(self, vector: Floats, passing: Any) -> list[int]:
        rows = self._rows if passing is None else self._rows[passing]
        scores = (self._vectors if passing is None else self._vectors[rows]) @ vector
        count = min(CANDIDATES, len(rows))
        best = np.argpartition(scores, -count)[-count:]
        return rows[best[np.argsort(-scores[best])]].tolist()

    def _by_words(self, text: str, passing: Any) -> list[int]:
        tokens = self._bm25s.tokenize(text, stemmer=self._stemmer, show_progress=False)
        rows, scores = self._words.retrieve(tokens, k=CANDIDATES, show_progress=False, weight_mask=passing)
        return rows[0][scores[0] > 0].tolist()
