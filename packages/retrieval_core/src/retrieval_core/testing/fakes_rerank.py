"""Stand-ins for models that score, judge and rewrite, for tests of this library and of those who use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Judgements, RerankScores, Rewritten
from retrieval_core.types import Judgement, Usage

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.types import Chunk

    Rewrite: TypeAlias = "str | Rewritten | Exception"
    """The new question, the whole answer, or an error to raise."""

_WORD = re.compile(r"\w+")


def word_overlap(query: str, passage: str) -> float:
    """Return the share of a question's different words that a passage has, in [0, 1]; 0 for a question without words.

    Words are compared in lower case and as they stand.
    """
    asked = set(_WORD.findall(query.lower()))
    return len(asked & set(_WORD.findall(passage.lower()))) / len(asked) if asked else 0.0


class _Fake:
    """What the fakes of this module have in common.

    Attributes:
        failure: Set it, and calls raise it.
        gate: Set it to an :class:`asyncio.Event`, and calls wait for that event before anything else; an event that is
            never set makes them hang.
        running: Calls that wait at the gate.
        most_running: The most calls that waited there at the same time.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.running = 0
        self.most_running = 0

    async def _obey(self) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.running -= 1
        if self.failure is not None:
            raise self.failure


class FakeReranker(_Fake):
    """A :class:`~retrieval_core.ports.Reranker` without a model; its score is :func:`word_overlap`.

    Args:
        scores: Scores of passages by their text, in place of that.
        batch_size: Passages of one call, at least 1.

    Attributes:
        calls: Question and passages of all calls, in order.
    """

    def __init__(self, scores: Mapping[str, float] | None = None, *, batch_size: int = 100) -> None:
        super().__init__()
        self._scores = dict(scores or {})
        self._batch_size = _checked(batch_size)
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    @property
    def id(self) -> str:
        """Names this fake."""
        return "fake-reranker"

    @property
    def batch_size(self) -> int:
        """As it was given."""
        return self._batch_size

    async def score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages, each by itself; a token of the usage is a word of a passage."""
        self.calls.append((query, tuple(passages)))
        await self._obey()
        scores = (self._scores.get(passage, word_overlap(query, passage)) for passage in passages)
        return RerankScores(tuple(scores), Usage(input_tokens=_words(passages)))


class FakeRelevanceFilter(_Fake):
    """A relevance filter without a model: what has half of a question's words is relevant.

    Args:
        judgements: Judgements of chunks by their id, in place of that.
        batch_size: Passages of one call, at least 1.

    Attributes:
        calls: Question and ids of the chunks of all calls, in order.
    """

    def __init__(self, judgements: Mapping[str, Judgement] | None = None, *, batch_size: int = 1) -> None:
        super().__init__()
        self._judgements = dict(judgements or {})
        self._batch_size = _checked(batch_size)
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    @property
    def id(self) -> str:
        """Names this fake."""
        return "fake-relevance_filter"

    @property
    def batch_size(self) -> int:
        """As it was given."""
        return self._batch_size

    async def judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
        """Judge passages by themselves; a token of the usage is a word of a passage."""
        self.calls.append((query, tuple(chunk.id for chunk in chunks)))
        await self._obey()
        judgements = (self._judgements.get(chunk.id) or _by_words(query, chunk) for chunk in chunks)
        return Judgements(tuple(judgements), Usage(input_tokens=_words([chunk.text for chunk in chunks])))


class FakeRewriter(_Fake):
    """A :class:`~retrieval_core.ports.Rewriter` without a model: it answers from a script or a function.

    Args:
        answer: A function of question and context, called for each request; or a script, one entry for each in order.

    Attributes:
        calls: Question and context of all calls, in order.
    """

    def __init__(self, answer: Callable[[str, str], Rewrite] | Sequence[Rewrite]) -> None:
        super().__init__()
        self._function = answer if callable(answer) else None
        self._script: list[Rewrite] = [] if callable(answer) else [*answer]
        self.calls: list[tuple[str, str]] = []

    @property
    def id(self) -> str:
        """Names this fake."""
        return "fake-rewriter"

    async def rewrite(self, query: str, context: str) -> Rewritten:
        """Answer a request; where the script has the new question alone, with the reason ``"scripted"``.

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
            msg = f"FakeRewriter was asked {len(self.calls)} times, and its script has fewer answers"
            raise AssertionError(msg)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Rewritten) else Rewritten(answer, "scripted")


def _by_words(query: str, chunk: Chunk) -> Judgement:
    score = word_overlap(query, chunk.text)
    return Judgement(score >= 0.5, score, f"{score:.0%} of the question's words")


def _words(passages: Sequence[str]) -> int:
    return sum(len(passage.split()) for passage in passages)


def _checked(batch_size: int) -> int:
    if batch_size < 1:
        msg = f"batch_size must be at least 1, got {batch_size}"
        raise InvalidParameterError(msg)
    return batch_size
