"""The relevance filter that compares a reranker's scores with a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from retrieval_core.config.base import AdapterSettings
from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Judgements, RelevanceFilter, Reranker, as_plugin
from retrieval_core.types import Judgement

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts
    from retrieval_core.types import Chunk

DEFAULT_THRESHOLD = 0.0001
"""Rarely loses a relevant passage, even of a question of two or three words.

The local model scores passages of such questions low as a whole: over phone reviews "arrived late" gives none more than
0.0003, right ones included. So the threshold is just above what it gives to a question and a passage that have nothing
to do with each other, mostly 0.00001 to 0.00002. Measured on the ten best by BM25 for 558 questions to four collections
and 17 short ones to phone reviews: of the relevant passages it keeps 98 to 100 %, and 96 % over the reviews, where 0.01
kept 75 %. Of questions about something else entirely it leaves nothing for 73 of 79 over the reviews. The price is that
it leaves out few of the passages that share the topic: 2 to 8 % of those that are not relevant, 30 % over the reviews.

A threshold relative to the best passage of a question was no better on questions that it was not chosen on. A table
of rules is in ``docs/dev/measurements.md``."""


class ByScores:
    """A reranker, and the least score of a relevant text.

    Args:
        reranker: Closed with this.
        threshold: The least score of a text that is kept, in [0, 1]; by default the module's ``DEFAULT_THRESHOLD``,
            which is for :class:`~retrieval_core.adapters.rerankers.local.LocalCrossEncoder`: the scores of other models
            mean something else.

    Raises:
        InvalidParameterError: The threshold is not in [0, 1].
    """

    _default: ClassVar[float]

    def __init__(self, reranker: Reranker, *, threshold: float | None = None) -> None:
        self._threshold = self._default if threshold is None else threshold
        if not 0 <= self._threshold <= 1:
            msg = f"threshold must be in [0, 1], got {self._threshold}"
            raise InvalidParameterError(msg)
        self._reranker = as_plugin(reranker, Reranker)

    @property
    def id(self) -> str:
        """Names reranker and threshold."""
        return f"{self._reranker.id}>={self._threshold}"

    @property
    def batch_size(self) -> int:
        """The reranker's."""
        return self._reranker.batch_size

    async def aclose(self) -> None:
        """Close the reranker, where it can be closed. Closing twice is fine."""
        if (close := getattr(self._reranker, "aclose", None)) is not None:
            await close()


class CrossEncoderRelevanceFilterSettings(AdapterSettings):
    """A cross-encoder on this machine that drops chunks below a score."""

    threshold: float = Field(default=DEFAULT_THRESHOLD, ge=0, le=1)
    """Lowest score of a chunk that is kept."""


class CrossEncoderRelevanceFilter(ByScores, RelevanceFilter):
    """Keeps the passages whose score reaches a threshold; a :class:`~retrieval_core.ports.RelevanceFilter`.

    The reranker reads a passage with its title and headings, as the index does.
    """

    Settings = CrossEncoderRelevanceFilterSettings
    _default = DEFAULT_THRESHOLD

    @classmethod
    def from_settings(cls, settings: CrossEncoderRelevanceFilterSettings, parts: AdapterParts) -> Self:
        """Make it over the cross-encoder of this machine, loading nothing."""
        return cls(parts.local_reranker, threshold=settings.threshold)

    async def _judge(self, query: str, chunks: Sequence[Chunk]) -> Judgements:
        """Judge passages by themselves, each against the question."""
        scored = await self._reranker.score(query, [chunk.indexed_text for chunk in chunks])
        return Judgements(tuple(self._judgement(score) for score in scored.scores), scored.usage)

    def _judgement(self, score: float) -> Judgement:
        relevant = score >= self._threshold
        side = "reaches" if relevant else "is below"
        return Judgement(relevant, score, f"The score {score:.6g} {side} the threshold {self._threshold:g}.")
