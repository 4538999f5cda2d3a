"""Scores that a reranker gave, kept for the next time."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from retrieval_core.run.lru import LruCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.ports import RerankScores
    from retrieval_core.types import Chunk


class RerankCache:
    """Keeps scores in memory by reranker, question, ids and contents: a passage that changed is scored anew.

    Args:
        max_size: The most calls whose scores are kept; at least 1.
        now: Tells the time in seconds; it never goes back.
        ttl_seconds: How long scores are kept; as long as there is room where it is not given.

    Raises:
        InvalidParameterError: ``max_size`` or ``ttl_seconds`` is out of its range.
    """

    def __init__(self, max_size: int, now: Callable[[], float], ttl_seconds: float | None = None) -> None:
        self._scores: LruCache[str, RerankScores] = LruCache(max_size, ttl_seconds, now)

    def get(self, reranker_id: str, query: str, chunks: Sequence[Chunk]) -> RerankScores | None:
        """Return the scores of a call; ``None`` where there are none."""
        return self._scores.get(_key(reranker_id, query, chunks))

    def set(self, reranker_id: str, query: str, chunks: Sequence[Chunk], scores: RerankScores) -> None:
        """Keep the scores of a call."""
        self._scores.set(_key(reranker_id, query, chunks), scores)

    def __len__(self) -> int:
        return len(self._scores)


def _key(reranker_id: str, query: str, chunks: Sequence[Chunk]) -> str:
    # What a reranker reads of a chunk is more than its text: the title and headings belong to it.
    parts = [reranker_id, query, *(part for chunk in chunks for part in (chunk.id, chunk.indexed_text))]
    digest = sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()
