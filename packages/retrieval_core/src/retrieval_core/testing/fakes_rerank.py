"""The fake reranker, relevance filter and rewriter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.ports import Judgements, RelevanceFilter, Reranker, RerankScores, Rewriter, Rewritten
from retrieval_core.testing.fakes_base import BatchFake, Fake
from retrieval_core.types import Judgement, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.types import Chunk

    Rewrite: TypeAlias = "str | Rewritten | Exception"
    """The new question, the whole answer, or an error to raise."""

_WORD = re.compile(r"\w+")


def word_overlap(query: str, passage: str) -> float:
    """Return the share of a question's different words, in lower case, that a passage has; 0 without words."""
    asked = set(_WORD.findall(query.lower()))
    return len(asked & set(_WORD.findall(passage.lower()))) / len(asked) if asked else 0.0


class FakeReranker(BatchFake, Reranker):
    """A :class:`~retrieval_core.ports.Reranker` without a model; its score is :func:`word_overlap`.

    Args:
        scores: Scores by passage, in place of that.
        batch_size: Passages of one call, at least 1.

    Attributes:
        calls: Question and passages of all calls, in order.
    """

    def __init__(self, scores: Mapping[str, float] | None = None, *, batch_size: int = 100) -> None:
        super().__init__("fake-reranker", batch_size)
        self._scores = dict(scores or {})
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages, each by itself; a token of the usage is a word of a passage."""
        self.calls.append((query, tuple(passages)))
        await self._obey()
        scores = (self._scores.get(passage, word_overlap(query, passage)) for passage in passages)
        return RerankScores(tuple(scores), Usage(input_tokens=_words(passages)))


class FakeRelevanceFilter(BatchFake, RelevanceFilter):
    """A :class:`~retrieval_core.ports.RelevanceFilter` without a model: half of the question's words are enough.

    Args:
        judgements: Judgements by chunk id, in place of that rule.
        batch_size: Passages of one call, at least 1.

    Attributes:
        calls: Question and ids of the chunks of all calls, in order.
    """

    def __init__(self, judgements: Mapping[str, Judgement] | None = None, *, batch_size: int = 1) -> None:
        super().__init__("fake-relevance_filter", batch_size)
        self._judgements = dict(judgements or {})
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    async def _judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
        """Judge passages by themselves; a token of the usage is a word of a passage."""
        self.calls.append((query, tuple(chunk.id for chunk in chunks)))
        await self._obey()
        judgements = (self._judgements.get(chunk.id) or _by_words(query, chunk) for chunk in chunks)
        return Judgements(tuple(judgements), Usage(input_tokens=_words([chunk.text for chunk in chunks])))


class FakeRewriter(Fake, Rewriter):
    """A :class:`~retrieval_core.ports.Rewriter` without a model: it answers from a script or a function.

    Args:
        answer: A function of question and context, called for each request; or a script, one entry for each in order.

    Attributes:
        calls: Question and context of all calls, in order.
    """

    def __init__(self, answer: Callable[[str, str], Rewrite] | Sequence[Rewrite]) -> None:
        super().__init__("fake-rewriter")
        self._function = answer if callable(answer) else None
        self._script: list[Rewrite] = [] if callable(answer) else [*answer]
        self.calls: list[tuple[str, str]] = []

    async def _rewrite(self, query: str, context: str) -> Rewritten:
        """Answer a request. If the script has only the new query, the reason is ``"scripted"``.

        Raises:
            AssertionError: The script has no further answer.
        """
        self.calls.append((query, context))
        await self._obey()
        if self._function is not None:
            answer = self._function(query, context)
        elif self._script:
            answer = self._script.pop(0)
        else:
            msg = f"FakeRewriter got {len(self.calls)} requests, and its script has fewer answers"
            raise AssertionError(msg)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Rewritten) else Rewritten(answer, "scripted")


def _by_words(query: str, chunk: Chunk) -> Judgement:
    score = word_overlap(query, chunk.text)
    return Judgement(score >= 0.5, score, f"{score:.0%} of the question's words")


def _words(passages: Sequence[str]) -> int:
    return sum(len(passage.split()) for passage in passages)
