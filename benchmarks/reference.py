"""What a search that compares everything finds, to hold the systems' results against.

Words are scored with BM25 (``k1 = 1.2``, ``b = 0.75``, the inverse document frequency of Lucene). Stop words of a
question are left out; those of a passage count in its length. What the systems do differs a little: some score stop
words, some leave them out of the length, some have another ``k1``. So even an exact one may not reach 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from benchmarks.collection import BLOCK, CANDIDATES, STOP_WORDS, TOP_K, VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from benchmarks.collection import Condition, MadeUp

    Scores = dict[int, float]
    """By row, best first."""

Fusion: TypeAlias = Literal["adaptive", "zscore", "rrf", "minmax"]

K1, B = 1.2, 0.75
RANK_CONSTANT = 60
DENSE_WEIGHT, LEAD = 0.65, 10
"""Of ``adaptive``: the dense side's weight where both leads are equal, and the place that the best is held against."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The best passages of each side for one question."""

    dense: Scores
    lexical: Scores

    def recall(self, found: Sequence[int], fusion: Fusion | None = None) -> float:
        """Return the share of the best passages that were found; of the dense side alone where nothing is fused."""
        best = list(self.dense)[:TOP_K] if fusion is None else fuse(self.dense, self.lexical, fusion)
        return len(set(best) & set(found)) / len(best) if best else 1.0


def exact(collection: MadeUp, questions: int, condition: Condition | None = None) -> list[Exact]:
    """Search for the first questions."""
    dense = _dense(collection, questions, condition)
    lexical = _lexical(collection, questions, condition)
    return [Exact(*sides) for sides in zip(dense, lexical, strict=True)]


def fuse(dense: Scores, lexical: Scores, fusion: Fusion) -> list[int]:
    """Return the best rows of both sides, each with half the weight; in ``adaptive`` by how far its best stands out."""
    sides = [_comparable(side, fusion) for side in (dense, lexical)]
    weights = (1.0, 1.0)
    if fusion == "adaptive":
        leads = [_lead(sorted(scores.values(), reverse=True)) for scores, _ in sides]
        weights = (DENSE_WEIGHT * leads[0], (1 - DENSE_WEIGHT) * leads[1])
    weighted = list(zip(sides, weights, strict=True))
    total = {
        row: sum(weight * scores.get(row, absent) for (scores, absent), weight in weighted) for row in dense | lexical
    }
    return sorted(total, key=lambda row: (-total[row], row))[:TOP_K]


def _lead(scores: Sequence[float]) -> float:
    """Return by how much the first of some falling scores is above the tenth, or above the last one."""
    return scores[0] - scores[:LEAD][-1] if scores else 0.0


def _comparable(side: Scores, fusion: Fusion) -> tuple[Mapping[int, float], float]:
    """Return scores that can be added to another side's, and that of what the side did not find."""
    if fusion == "rrf" or not side:
        return {row: 1 / (RANK_CONSTANT + rank) for rank, row in enumerate(side, start=1)}, 0.0
    values = np.array(list(side.values()))
    if fusion in {"adaptive", "zscore"}:
        scaled = (values - values.mean()) / (values.std() or 1)
        return dict(zip(side, scaled.tolist(), strict=True)), float(scaled.min())
    low, high = float(values.min()), float(values.max())
    return {row: (value - low) / ((high - low) or 1) for row, value in side.items()}, 0.0


def _best(rows: NDArray[np.intp], scores: NDArray[np.float32]) -> Scores:
    order = np.lexsort((rows, -scores))[:CANDIDATES]
    return dict(zip(rows[order].tolist(), scores[order].tolist(), strict=True))


def _dense(collection: MadeUp, questions: int, condition: Condition | None) -> list[Scores]:
    asked = collection.question_vectors[:questions].T
    best: list[Scores] = [{} for _ in range(questions)]
    for start in range(0, len(collection), BLOCK):
        block = collection.vectors[start : start + BLOCK]
        rows = np.arange(start, start + len(block))
        if condition is not None:
            rows = rows[condition.passes(rows)]
            block = block[rows - start]
        scores = block @ asked
        for number, before in enumerate(best):
            known = np.array([*before], dtype=np.intp), np.array([*before.values()], dtype=np.float32)
            best[number] = _best(
                np.concatenate([known[0], rows]), np.concatenate([known[1], scores[:, number]]).astype(np.float32)
            )
    return best


def _lexical(collection: MadeUp, questions: int, condition: Condition | None) -> list[Scores]:
    asked = [
        sorted({word for word in words if word >= len(STOP_WORDS)}) for words in collection.question_words[:questions]
    ]
    wanted = np.zeros(VOCABULARY, dtype=np.bool_)
    wanted[[word for words in asked for word in words]] = True
    places = np.flatnonzero(wanted[collection.words])
    words = collection.words[places]
    rows = np.searchsorted(collection.ends, places, side="right")
    # Each pair of a word and a passage once, with how often the one is in the other; ordered by word.
    pairs, counts = np.unique(words.astype(np.int64) * len(collection) + rows, return_counts=True)
    words, rows = np.divmod(pairs, len(collection))
    length = np.diff(collection.ends, prepend=0)
    norm = K1 * (1 - B + B * length / length.mean())
    found: list[Scores] = []
    for question in asked:
        scores = np.zeros(len(collection), dtype=np.float64)
        for word in question:
            begin, end = np.searchsorted(words, (word, word + 1))
            having = rows[begin:end]
            frequency = np.log1p((len(collection) - len(having) + 0.5) / (len(having) + 0.5))
            scores[having] += frequency * counts[begin:end] / (counts[begin:end] + norm[having])
        matching = np.flatnonzero(scores)
        if condition is not None:
            matching = matching[condition.passes(matching)]
        found.append(_best(matching, scores[matching].astype(np.float32)))
    return found
