"""The port for pruners, which choose the sentences of a passage that bear on a question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Usage


@dataclass(frozen=True, slots=True)
class Kept:
    """Which sentences a pruner keeps.

    Attributes:
        kept: For each passage, for each of its sentences in order, whether it is kept.
        scores: The relevance of each sentence, in the same shape, higher is better, on the pruner's scale; empty if
            there are none. If no sentence of a passage is kept, its best one stays (without scores its first one).
    """

    kept: tuple[tuple[bool, ...], ...]
    scores: tuple[tuple[float, ...], ...] = ()
    usage: Usage | None = None


class Pruner(Protocol):
    """Chooses the sentences of passages that bear on a question; the others are not shown."""

    @property
    def id(self) -> str:
        """Names model and settings: two pruners with the same id keep the same."""
        ...

    @property
    def batch_size(self) -> int:
        """The most sentences of one call, at least 1; a passage that has more comes by itself, whole."""
        ...

    async def keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        """Judge the sentences of passages.

        Args:
            query: The normalised question.
            passages: The sentences of each, in the order of its text; together they are the text, but for white space.

        Raises:
            ServiceError: The model failed, or gave no answer that could be used.
            EmbeddingError: A text could not be embedded.
        """
        ...
