"""Embedded questions, kept for the next time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.run.lru import LruCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.types import Vector


class EmbeddingCache:
    """Keeps the vectors of questions of one embedder in memory. A vector that comes out cannot be changed.

    They are kept as long as there is room: the same text of the same embedder has the same vector for ever.

    Args:
        max_size: The most vectors; at least 1.
        now: Tells the time in seconds; it never goes back.

    Raises:
        InvalidParameterError: ``max_size`` is less.
    """

    def __init__(self, max_size: int, now: Callable[[], float]) -> None:
        self._vectors: LruCache[str, Vector] = LruCache(max_size, None, now)

    def get(self, text: str) -> Vector | None:
        """Return the vector of a question, shape ``(dimension,)``, read only; ``None`` where there is none."""
        return self._vectors.get(text)

    def set(self, text: str, vector: Vector) -> Vector:
        """Keep a copy of a question's vector, and return that copy, which is read only."""
        import numpy as np  # noqa: PLC0415 - whoever has a vector has loaded it

        # An array over bytes cannot be made writable again, as one that owns its memory can.
        copy = np.frombuffer(vector.tobytes(), dtype=vector.dtype).reshape(vector.shape)
        self._vectors.set(text, copy)
        return copy
