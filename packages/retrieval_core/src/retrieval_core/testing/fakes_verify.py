"""A stand-in for models that hold sentences against passages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Verdicts, Verified
from retrieval_core.testing.fakes_rerank import word_overlap
from retrieval_core.types import Usage

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence


class FakeVerifier:
    """A :class:`~retrieval_core.ports.Verifier` without a model: a passage supports what it has all words of.

    It quotes the whole passage, and contradicts nothing unless it is told to.

    Args:
        verdicts: Verdicts on sentences by their text, in place of that.
        batch_size: Sentences of one call, at least 1.

    Attributes:
        calls: Question, sentences and passages of all calls, in order.
        failure: Set it, and calls raise it.
        gate: Set it to an :class:`asyncio.Event`, and calls wait for that event before anything else; an event that is
            never set makes them hang.
        most_running: The most calls that ran at the same time.
    """

    def __init__(self, verdicts: Mapping[str, Verified] | None = None, *, batch_size: int = 100) -> None:
        if batch_size < 1:
            msg = f"batch_size must be at least 1, got {batch_size}"
            raise InvalidParameterError(msg)
        self._verdicts = dict(verdicts or {})
        self._batch_size = batch_size
        self.calls: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.most_running = 0
        self._running = 0

    @property
    def id(self) -> str:
        """Names this fake."""
        return "fake-verifier"

    @property
    def batch_size(self) -> int:
        """As it was given."""
        return self._batch_size

    async def verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
        """Judge sentences, each by itself; a token of the usage is a sentence."""
        self.calls.append((query, tuple(sentences), tuple(passages)))
        self._running += 1
        self.most_running = max(self.most_running, self._running)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self._running -= 1
        if self.failure is not None:
            raise self.failure
        found = tuple(self._verdicts.get(sentence) or _by_words(sentence, passages) for sentence in sentences)
        return Verdicts(found, Usage(input_tokens=len(sentences)))


def _by_words(sentence: str, passages: Sequence[str]) -> Verified:
    for place, passage in enumerate(passages):
        if word_overlap(sentence, passage) == 1:
            return Verified("supported", place, passage, "the passage has all of its words")
    return Verified("not_found", reason="no passage has all of its words")
