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
from retrieval_core.text.query import plain_question

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.types import Vector


MAX_QUESTIONS = 1000
"""The most questions that are kept: comparing one with all of them takes less than a millisecond."""


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

    It may be used from several threads and event loops: each operation is done as a whole, under a lock.

    Args:
        threshold: The least cosine of two vectors whose questions may be the same, in [-1, 1]. That they ask the same
            is for :mod:`retrieval_core.text.query` to say.
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

    def find(self, partition: str, question: str, vector: Vector) -> Lookup:
        """Return the nearest question of a part that asks the same; of equally near ones, the one used last.

        Args:
            partition: Names the part: everything but the question that a result depends on.
            question: As it is searched for, normalised.
            vector: Of any length but 0, shape ``(dimension,)``; others of the part with another shape do not count.
        """
        import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

        plain, direction = plain_question(question), _unit(vector)
        if direction is None:
            return Lookup(None, 0, 0)
        with self._lock:
            self._forget_old()
            known = [
                (key, entry)
                for (part, key), entry in [*self._entries.items()][::-1]
                if part == partition and entry.direction.shape == direction.shape
            ]
            if not known:
                return Lookup(None, 0, 0)
            cosines = np.stack([entry.direction for _, entry in known]) @ direction
            near = [int(place) for place in np.argsort(-cosines, kind="stable") if cosines[place] >= self._threshold]
            for refused, place in enumerate(near):
                key, entry = known[place]
                if entry.plain == plain:
                    self._entries.move_to_end((partition, key))
                    match = SimilarQuestion(entry.question, key, min(1.0, float(cosines[place])))
                    return Lookup(match, len(known), refused)
            return Lookup(None, len(known), len(near))

    def add(self, partition: str, question: str, vector: Vector, key: str) -> None:
        """Keep a question, in place of what was known under the same key; its age begins anew.

        A vector that has no direction is not kept.
        """
        direction = _unit(vector)
        if direction is None:
            return
        entry = _Entry(question, plain_question(question), direction, self._now())
        with self._lock:
            self._entries[partition, key] = entry
            self._entries.move_to_end((partition, key))
            if len(self._entries) > self._max_size:
                self._entries.popitem(last=False)

    def discard(self, partition: str, key: str) -> None:
        """Forget a question, because its result is gone."""
        with self._lock:
            self._entries.pop((partition, key), None)

    def clear(self) -> None:
        """Forget all questions."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _forget_old(self) -> None:
        now = self._now()
        for place in [place for place, entry in self._entries.items() if now - entry.created_at >= self._ttl]:
            del self._entries[place]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    question: str
    plain: str
    direction: Vector
    created_at: float


def _unit(vector: Vector) -> Vector | None:
    """Return a vector of length 1 in the same direction; ``None`` where it has none."""
    import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

    wide = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(wide))
    if wide.ndim != 1 or not 0 < length < float("inf"):
        return None
    return (wide / length).astype(np.float32)
