"""The pruner that compares a reranker's scores of sentences with a threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.adapters.pruners.align import rows_of
from retrieval_core.adapters.relevance_filters.cross_encoder import ByScores
from retrieval_core.ports import Kept, Pruner
from retrieval_core.types import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts

DEFAULT_THRESHOLD = 0.00003
"""Just above the local model's score of a sentence that has nothing to do with the question, about 0.00001.

Measured on 162 financial questions with the five best passages of each: see ``docs/measurements.md``."""


class CrossEncoderPruner(ByScores, Pruner):
    """Keeps the sentences whose score reaches a threshold; a :class:`~retrieval_core.ports.Pruner`."""

    _default = DEFAULT_THRESHOLD

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make it over the cross-encoder of this machine, loading nothing."""
        return cls(parts.local_reranker, threshold=parts.section.threshold)

    @property
    def id(self) -> str:
        """Names reranker and threshold."""
        return f"sentences {super().id}"

    async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        """Judge the sentences of passages, each by itself.

        More sentences than the reranker's batch size take several of its calls, one after the other.
        """
        sentences = [sentence for passage in passages for sentence in passage]
        size = max(1, self.batch_size)
        scores: list[float] = []
        usage: Usage | None = None
        for start in range(0, len(sentences), size):
            scored = await self._reranker.score(query, sentences[start : start + size])
            scores += scored.scores
            if scored.usage is not None:
                usage = (usage or Usage()) + scored.usage
        return Kept(rows_of([score >= self._threshold for score in scores], passages), rows_of(scores, passages), usage)
