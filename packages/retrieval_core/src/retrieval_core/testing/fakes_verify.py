"""The fake verifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.ports import Verdicts, Verified, Verifier
from retrieval_core.testing.fakes_base import BatchFake
from retrieval_core.testing.fakes_rerank import word_overlap
from retrieval_core.types import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class FakeVerifier(BatchFake, Verifier):
    """A :class:`~retrieval_core.ports.Verifier` without a model: a passage supports a sentence if it has all its words.

    It quotes the whole passage, and contradicts only by ``verdicts``.

    Args:
        verdicts: Verdicts by sentence, in place of that rule.
        batch_size: Sentences of one call, at least 1.

    Attributes:
        calls: Question, sentences and passages of all calls, in order.
    """

    def __init__(self, verdicts: Mapping[str, Verified] | None = None, *, batch_size: int = 100) -> None:
        super().__init__("fake-verifier", batch_size)
        self._verdicts = dict(verdicts or {})
        self.calls: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []

    async def _verify(self, query: str, sentences: Sequence[str], passages: Sequence[str]) -> Verdicts:
        """Judge sentences, each by itself; a token of the usage is a sentence."""
        self.calls.append((query, tuple(sentences), tuple(passages)))
        await self._obey()
        found = tuple(self._verdicts.get(sentence) or _by_words(sentence, passages) for sentence in sentences)
        return Verdicts(found, Usage(input_tokens=len(sentences)))


def _by_words(sentence: str, passages: Sequence[str]) -> Verified:
    for place, passage in enumerate(passages):
        if word_overlap(sentence, passage) == 1:
            return Verified("supported", place, passage, "the passage has all of its words")
    return Verified("not_found", reason="no passage has all of its words")
