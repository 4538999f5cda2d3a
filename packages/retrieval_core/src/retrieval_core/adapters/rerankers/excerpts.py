"""The reranker that shows another one excerpts in place of whole passages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from retrieval_core.text.excerpts import Excerpter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Reranker, RerankScores
    from retrieval_core.text.analysis import Analyzer

MAX_CHARACTERS: Final = 600
"""Code points of a passage that are shown: what chose them is in ``docs/measurements.md``."""


class ExcerptReranker:
    """Has passages scored by their sentences that bear most on the question; a :class:`~retrieval_core.ports.Reranker`.

    A small cross-encoder orders passages better by these than by their beginnings, and reads them several times as
    quickly.

    Args:
        reranker: Scores the excerpts. It is closed with this one.
        analyzer: Turns words into terms; best the index's.
    """

    def __init__(self, reranker: Reranker, analyzer: Analyzer) -> None:
        self._reranker = reranker
        self._analyzer = analyzer

    @property
    def id(self) -> str:
        """Names the reranker, and how much it is shown."""
        return f"{self._reranker.id}, excerpts of {MAX_CHARACTERS} characters"

    @property
    def batch_size(self) -> int:
        """As of the reranker."""
        return self._reranker.batch_size

    @property
    def is_loaded(self) -> bool:
        """Whether the reranker has loaded its model; ``True`` for one without."""
        return getattr(self._reranker, "is_loaded", True)

    @property
    def loaded_bytes(self) -> int | None:
        """What the reranker holds in memory, as far as it is known."""
        return getattr(self._reranker, "loaded_bytes", None)

    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages by their excerpts, each by itself, in [0, 1].

        Raises:
            RetrievalError: As of the reranker.
        """
        return await self._reranker.score(query, await asyncio.to_thread(self._excerpts, query, passages))

    async def aclose(self) -> None:
        """Close the reranker, where it can be."""
        if (close := getattr(self._reranker, "aclose", None)) is not None:
            await close()

    def _excerpts(self, query: str, passages: Sequence[str]) -> list[str]:
        excerpter = Excerpter(query, self._analyzer)
        # A sentence may be longer than all that is shown.
        return [excerpter.excerpt(text, MAX_CHARACTERS) or text[:MAX_CHARACTERS] for text in passages]
