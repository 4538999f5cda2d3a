"""Fakes of all ports except language models: without a model, and with calls that can be made to fail or to wait."""

from __future__ import annotations

import re
from collections.abc import Callable  # noqa: TC003 - type aliases are public
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from retrieval_core.errors import EmbeddingError, checked_count
from retrieval_core.ports import (
    Embedder,
    Judgements,
    Kept,
    Pruner,
    QueryContext,
    QueryTransformer,
    RelevanceFilter,
    Reranker,
    RerankScores,
    Rewriter,
    Rewritten,
    Transformed,
    Verdicts,
    Verified,
    Verifier,
)
from retrieval_core.types import Judgement, Usage

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from retrieval_core.types import Chunk, Matrix, Vector

    Rewrite: TypeAlias = "str | Rewritten | Exception"
    """The new question, the whole answer, or an error to raise."""

_WORD = re.compile(r"\w+")
_ENDING = re.compile(r"(?<=\w{3})(?:ations?|ings?|ers?|ed|es|s|e)$")
Made: TypeAlias = "Transformed | str"


class Fake:
    """A fake whose calls can be made to fail or to wait.

    Attributes:
        failure: Set it, and calls raise it.
        gate: Set it to an :class:`asyncio.Event`, and calls wait for that event before anything else; an event that is
            never set makes them hang.
        running: Calls that wait at the gate.
        most_running: The most calls that waited there at the same time.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.failure: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.running = 0
        self.most_running = 0

    @property
    def id(self) -> str:
        """Names this fake."""
        return self._name

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


class BatchFake(Fake):
    """A fake that takes several items in a call.

    Raises:
        InvalidParameterError: ``batch_size`` is less than 1.
    """

    def __init__(self, name: str, batch_size: int) -> None:
        super().__init__(name)
        self._batch_size = checked_count(batch_size, "batch_size")

    @property
    def batch_size(self) -> int:
        """The most items of one call."""
        return self._batch_size


class FakeEmbedder(Fake, Embedder):
    """An :class:`~retrieval_core.ports.Embedder` without a model: texts are similar if they share words.

    A text's vector counts its words, each at the component given by a hash of its stem. The cosine of two texts is 0
    without common words and 1 with only common words, except for collisions. It is the same in every process and
    Python version. A text without words has a distinct vector.

    Args:
        dimension: Components of a vector, at least 1; the more, the fewer collisions.

    Attributes:
        queries: The texts of all calls of :meth:`embed_query`, in order.
        batches: The texts of all calls of :meth:`embed_texts`, in order.
    """

    def __init__(self, dimension: int = 256) -> None:
        super().__init__(f"fake-words-{dimension}")
        self._dimension = checked_count(dimension, "dimension")
        self.queries: list[str] = []
        self.batches: list[tuple[str, ...]] = []

    @property
    def dimension(self) -> int:
        """Number of components of each vector."""
        return self._dimension

    async def _embed_query(self, text: str) -> Vector:
        """Embed one question: shape ``(dimension,)``, float32, unit length."""
        self.queries.append(text)
        try:
            await self._obey()
        except EmbeddingError as error:
            error.query = text
            raise
        return self.vector(text)

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: shape ``(len(texts), dimension)``, float32, rows of unit length."""
        self.batches.append(tuple(texts))
        await self._obey()
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self.vector(text)
        return vectors

    def vector(self, text: str) -> Vector:
        """Return the vector of a text, without a call that is recorded or fails."""
        counts = np.zeros(self._dimension, dtype=np.float32)
        for stem in _stems(text) or [""]:
            counts[_place(stem, self._dimension)] += 1
        return np.asarray(counts / np.linalg.norm(counts), dtype=np.float32)


class CountingFakeEmbedder(FakeEmbedder):
    """A :class:`FakeEmbedder` that also counts tokens; its tokens are words.

    Args:
        max_tokens: Words, divided by white space, that it reads of a text; at least 1.
    """

    def __init__(self, dimension: int = 256, max_tokens: int = 512) -> None:
        super().__init__(dimension)
        self._max_tokens = checked_count(max_tokens, "max_tokens")

    @property
    def id(self) -> str:
        """Names this embedder, its dimension and how much it reads."""
        return f"{super().id}-{self._max_tokens}"

    @property
    def max_tokens(self) -> int:
        """Words beyond this number do not count."""
        return self._max_tokens

    def count_tokens(self, text: str) -> int:
        """Return the number of words divided by white space."""
        return len(text.split())

    def vector(self, text: str) -> Vector:
        """Return the vector of what it reads of a text."""
        return super().vector(" ".join(text.split()[: self._max_tokens]))


def _stems(text: str) -> list[str]:
    """Return the words of a text in lower case without common English endings."""
    return [_ENDING.sub("", word) for word in _WORD.findall(text.lower())]


def _place(stem: str, dimension: int) -> int:
    digest = blake2b(stem.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % dimension


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


class FakeTransformer(Fake, QueryTransformer):
    """A :class:`~retrieval_core.ports.QueryTransformer` that returns what it was made with.

    Args:
        made: The result for any question, or a function of question and context; by default nothing.
        name: For its id.

    Attributes:
        asked: Questions with their contexts, in order.
    """

    def __init__(
        self, made: Made | Callable[[str, QueryContext], Made] | None = None, *, name: str = "fake-transformer"
    ) -> None:
        self._made = Transformed() if made is None else made
        super().__init__(name)
        self.asked: list[tuple[str, QueryContext]] = []

    async def _transform(self, query: str, context: QueryContext) -> Made:
        """Return what it was made with."""
        self.asked.append((query, context))
        await self._obey()
        return self._made(query, context) if callable(self._made) else self._made


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
        found = tuple(self._verdicts.get(sentence) or _verdict_by_words(sentence, passages) for sentence in sentences)
        return Verdicts(found, Usage(input_tokens=len(sentences)))


def _verdict_by_words(sentence: str, passages: Sequence[str]) -> Verified:
    for place, passage in enumerate(passages):
        if word_overlap(sentence, passage) == 1:
            return Verified("supported", place, passage, "the passage has all of its words")
    return Verified("not_found", reason="no passage has all of its words")
