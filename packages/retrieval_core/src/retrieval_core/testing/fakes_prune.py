"""The fake pruner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.ports import Kept, Pruner
from retrieval_core.testing.fakes_base import BatchFake
from retrieval_core.testing.fakes_rerank import word_overlap
from retrieval_core.types import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakePruner(BatchFake, Pruner):
    """A :class:`~retrieval_core.ports.Pruner` without a model: keeps sentences that share a word with the question.

    Args:
        batch_size: Sentences of one call, at least 1.

    Attributes:
        calls: Question and passages of all calls, in order.
    """

    def __init__(self, *, batch_size: int = 100) -> None:
        super().__init__("fake-pruner", batch_size)
        self.calls: list[tuple[str, tuple[tuple[str, ...], ...]]] = []

    async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        """Judge sentences, each by itself; a token of the usage is a sentence."""
        self.calls.append((query, tuple(tuple(passage) for passage in passages)))
        await self._obey()
        scores = tuple(tuple(word_overlap(query, sentence) for sentence in passage) for passage in passages)
        kept = tuple(tuple(score > 0 for score in row) for row in scores)
        return Kept(kept, scores, Usage(input_tokens=sum(map(len, passages))))
