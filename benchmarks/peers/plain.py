"""What anyone would write first: vectors in a numpy array, bm25s with a stemmer for the words, and fusion by ranks.

``numpy-bm25s-scores`` adds the scores of both sides up, each brought to 0 to 1, in place of reciprocal ranks.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.collection import TOP_K

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.collection import Collection, Floats, Question

RANK_CONSTANT = 60


class System:
    """Two arrays, and no guard of any kind."""

    def __init__(self, collection: Collection, place: Path, settings: Mapping[str, str]) -> None:
        del place
        self._by_rank = settings["system"] != "numpy-bm25s-scores"
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
        for rows, scores in sides:
            for row, score in zip(rows, self._comparable(scores), strict=True):
                fused[row] = fused.get(row, 0) + score
        best = sorted(fused, key=fused.__getitem__, reverse=True)[:TOP_K]
        return [row for row in best if self._texts[row]]

    def close(self) -> None:
        """Do nothing."""

    def _comparable(self, scores: Floats) -> list[float]:
        if self._by_rank or not scores.size:
            return (1 / (RANK_CONSTANT + np.arange(1, scores.size + 1))).tolist()
        return ((scores - scores.min()) / (np.ptp(scores) or 1)).tolist()

    def _by_meaning(self, vector: Floats, passing: Any) -> tuple[list[int], Floats]:
        rows = self._rows if passing is None else self._rows[passing]
        scores = (self._vectors if passing is None else self._vectors[rows]) @ vector
        count = min(self._collection.candidates, len(rows))
        best = np.argpartition(scores, -count)[-count:]
        best = best[np.argsort(-scores[best])]
        return rows[best].tolist(), scores[best]

    def _by_words(self, text: str, passing: Any) -> tuple[list[int], Floats]:
        tokens = self._bm25s.tokenize(text, stemmer=self._stemmer, show_progress=False)
        limit = self._collection.candidates
        found, scored = self._words.retrieve(tokens, k=limit, show_progress=False, weight_mask=passing)
        rows, scores = found[0], scored[0]
        return rows[scores > 0].tolist(), scores[scores > 0]
