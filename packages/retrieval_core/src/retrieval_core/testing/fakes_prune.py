"""A stand-in for models that tell which sentences bear on a question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Kept
from retrieval_core.testing.fakes_rerank import word_overlap
from retrieval_core.types import Usage

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence


class FakePruner:
    """A :class:`~retrieval_core.ports.Pruner` without a model: keeps sentences that share a word with the question.

    Args:
        batch_size: Sentences of one call, at least 1.

    Attributes:
        calls: Question and passages of all calls, in order.
        failure: Set it, and calls raise it.
        gate: Set it to an :class:`asyncio.Event`, and calls wait for that event before anything else.
        most_running: The most calls that ran at the same time.
    """

    def __init__(self, *, batch_size: int = 100) -> None:
        if batch_size < 1:
            msg = f"batch_size must be at least 1, got {batch_size}"
            raise InvalidParameterError(msg)
        self._batch_size = batch_size
        self.calls: list[tuple[str, tuple[tuple[str, ...], ...]]] = []
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.most_running = 0
        self._running = 0

    @property
    def id(self) -> str:
        """Names this fake."""
        return "fake-pruner"

    @property
    def batch_size(self) -> int:
        """As it was given."""
        return self._batch_size

    async def keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        """Judge sentences, each by itself; a token of the usage is a sentence."""
        self.calls.append((query, tuple(tuple(passage) for passage in passages)))
        self._running += 1
        self.most_running = max(self.most_running, self._running)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self._running -= 1
        if self.failure is not None:
            raise self.failure
        scores = tuple(tuple(word_overlap(query, sentence) for sentence in passage) for passage in passages)
        kept = tuple(tuple(score > 0 for score in row) for row in scores)
        return Kept(kept, scores, Usage(input_tokens=sum(map(len, passages))))
