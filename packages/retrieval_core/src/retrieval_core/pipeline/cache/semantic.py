"""Questions that were answered before, found again by meaning.

What is kept is a question's vector and the key of its result; the results themselves stay in the cache of results. The
questions are parted by everything else that a result depends on, so that none is ever compared with one that was asked
under another filter, of another index or state of it, with other settings, or, where that is wanted, in another
session. Within its part a question is compared with all others by one product of matrix and vector.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError, checked_count
from retrieval_core.text.paraphrase import plain_question

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.types import Matrix, Vector


_ROUNDING = 1e-5
"""More than a bound for a cosine can be too low by, in 32 bits."""


@dataclass(frozen=True, slots=True)
class SimilarQuestion:
    """A question that asks the same.

    Attributes:
        question: As it was searched for.
        key: The key of its result.
        similarity: Cosine of the two vectors, in [-1, 1].
    """

    question: str
    key: str
    similarity: float


@dataclass(frozen=True, slots=True)
class Lookup:
    """What came of looking for a question.

    Attributes:
        match: The nearest question that asks the same; ``None`` where there is none.
        compared: With how many questions it was compared.
        refused: How many were near enough, nearer than the match where there is one, and ask something else.
    """

    match: SimilarQuestion | None
    compared: int
    refused: int


class SemanticCache:
    """Finds a question that asks the same as another one in other words.

    It may be used from several threads and event loops: each operation is done as a whole, under a lock. The longest
    one compares ``max_size`` vectors, which takes less than a millisecond for 10,000 of 384 components.

    Args:
        threshold: The least cosine of two vectors whose questions may be the same, in [-1, 1]. That they ask the same
            is for :mod:`retrieval_core.text.paraphrase` to say.
        max_size: The most questions, of all parts together, at least 1; those longest unused go first.
        ttl_seconds: A question of this age is gone; more than 0.
        now: Tells the time in seconds; it never goes back.

    Raises:
        InvalidParameterError: An argument is out of its range.
    """

    def __init__(self, threshold: float, max_size: int, ttl_seconds: float, now: Callable[[], float]) -> None:
        if not -1 <= threshold <= 1:
            msg = f"threshold must be a cosine, -1 to 1, got {threshold}"
            raise InvalidParameterError(msg)
        if not ttl_seconds > 0:
            msg = f"ttl_seconds must be more than 0, got {ttl_seconds}"
            raise InvalidParameterError(msg)
        self._threshold = threshold
        self._max_size = checked_count(max_size, "max_size")
        self._ttl = ttl_seconds
        self._now = now
        self._lock = Lock()
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._parts: dict[str, _Part] = {}

    def find(self, partition: str, question: str, vector: Vector) -> Lookup:
        """Return the nearest question of a part that asks the same; of equally near ones, the one added last.

        Args:
            partition: Names the part: everything but the question that a result depends on.
            question: As it is searched for, normalised.
            vector: Of any length but 0, shape ``(dimension,)``; that of the part's other vectors.
        """
        plain = plain_question(question)
        direction = _unit(vector)
        now = self._now()
        with self._lock:
            part = self._parts.get(partition)
            compared = refused = 0
            if part is not None and direction is not None and direction.shape == part.shape:
                compared = len(part.entries)
                for entry, similarity in part.near(direction, self._threshold):
                    if now - entry.created_at >= self._ttl:
                        self._remove(entry)
                    elif entry.plain == plain:
                        self._entries.move_to_end(entry.place)
                        return Lookup(SimilarQuestion(entry.question, entry.key, similarity), compared, refused)
                    else:
                        refused += 1
            return Lookup(None, compared, refused)

    def add(self, partition: str, question: str, vector: Vector, key: str) -> None:
        """Keep a question, in place of what was known under the same key; its age begins anew.

        A vector that has no direction, or another length than those of its part, is not kept.
        """
        direction = _unit(vector)
        if direction is None:
            return
        entry = _Entry((partition, key), question, plain_question(question), self._now())
        with self._lock:
            if (known := self._entries.get(entry.place)) is not None:
                self._remove(known)
            part = self._parts.get(partition)
            if part is None:
                part = self._parts[partition] = _Part(direction.shape)
            if direction.shape != part.shape:
                return
            part.append(entry, direction)
            self._entries[entry.place] = entry
            if len(self._entries) > self._max_size:
                self._remove(next(iter(self._entries.values())))

    def discard(self, partition: str, key: str) -> None:
        """Forget a question, because its result is gone."""
        with self._lock:
            if (entry := self._entries.get((partition, key))) is not None:
                self._remove(entry)

    def clear(self) -> None:
        """Forget all questions."""
        with self._lock:
            self._entries.clear()
            self._parts.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _remove(self, entry: _Entry) -> None:
        del self._entries[entry.place]
        partition = entry.place[0]
        part = self._parts[partition]
        part.remove(entry)
        if not part.entries:
            del self._parts[partition]


@dataclass(slots=True, eq=False)
class _Entry:
    place: tuple[str, str]
    question: str
    plain: str
    created_at: float
    row: int = -1

    @property
    def key(self) -> str:
        return self.place[1]


class _Part:
    """The questions of one part, and matrices with their vectors, whose size is within four times what it needs.

    The first quarter of each vector is kept a second time, with the length of the rest. By Cauchy and Schwarz, a cosine
    is at most the product of the first quarters plus that of the lengths of the rests. Among questions that are not
    alike this is seldom enough for a high threshold, so most vectors are never read as a whole: reading is what costs.
    """

    __slots__ = ("_added", "_count", "_heads", "_rests", "_rows", "_split", "entries", "shape")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.entries: list[_Entry] = []
        self._split = shape[0] // 4
        self._rows, self._heads, self._rests = self._empty(1)
        self._added: list[int] = []
        self._count = 0

    def append(self, entry: _Entry, direction: Vector) -> None:
        size = len(self.entries)
        if size == len(self._rows):
            self._resize(2 * size)
        self._rows[size] = direction
        self._heads[size] = direction[: self._split]
        self._rests[size] = _length(direction[self._split :])
        entry.row = size
        self.entries.append(entry)
        self._count += 1
        self._added.append(self._count)

    def remove(self, entry: _Entry) -> None:
        """Put the last row where the entry's was."""
        row, last, added = entry.row, self.entries.pop(), self._added.pop()
        if last is not entry:
            self.entries[row], self._added[row] = last, added
            for kept in (self._rows, self._heads, self._rests):
                kept[row] = kept[last.row]
            last.row = row
        if len(self.entries) * 4 <= len(self._rows) and self.entries:
            self._resize(2 * len(self.entries))

    def near(self, direction: Vector, threshold: float) -> list[tuple[_Entry, float]]:
        """Return the entries whose cosine reaches the threshold, nearest first and, where equal, latest first."""
        import numpy as np  # noqa: PLC0415 - loaded with the matrix

        size = len(self.entries)
        most = _products(self._heads[:size], direction[: self._split])
        most += self._rests[:size] * np.float32(_length(direction[self._split :]))
        possible = np.flatnonzero(most >= threshold - _ROUNDING)
        cosines = _products(self._rows[:size] if len(possible) == size else self._rows[possible], direction)
        found = np.flatnonzero(cosines >= threshold)
        values: list[float] = np.minimum(cosines[found], 1.0).tolist()
        rows: list[int] = possible[found].tolist()
        best = sorted(zip(values, rows, strict=True), key=lambda item: (-item[0], -self._added[item[1]]))
        return [(self.entries[row], cosine) for cosine, row in best]

    def _resize(self, rows: int) -> None:
        before = (self._rows, self._heads, self._rests)
        self._rows, self._heads, self._rests = after = self._empty(rows)
        size = len(self.entries)
        for old, new in zip(before, after, strict=True):
            new[:size] = old[:size]

    def _empty(self, rows: int) -> tuple[Matrix, Matrix, Vector]:
        import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

        shapes = ((rows, *self.shape), (rows, self._split), (rows,))
        whole, heads, rests = (np.zeros(shape, dtype=np.float32) for shape in shapes)
        return whole, heads, rests


def _products(rows: Matrix, direction: Vector) -> Vector:
    """Return the product of each row with the vector.

    As a product of many rows with one column each, for which BLAS starts no threads: handing work to these costs many
    times what the product does.
    """
    return (rows[:, None, :] @ direction[:, None])[:, 0, 0]


def _length(vector: Vector) -> float:
    return float(vector @ vector) ** 0.5


def _unit(vector: Vector) -> Vector | None:
    """Return a vector of length 1 in the same direction; ``None`` where it has none."""
    import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

    wide = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(wide))
    if wide.ndim != 1 or not 0 < length < float("inf"):
        return None
    return (wide / length).astype(np.float32)
