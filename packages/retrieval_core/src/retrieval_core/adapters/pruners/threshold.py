"""The pruners that compare a score of each sentence with a threshold: a reranker's, or its cosine with the query."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from retrieval_core.adapters.relevance_filters.cross_encoder import ByScores
from retrieval_core.errors import ConfigurationError, InvalidParameterError
from retrieval_core.ports import Embedder, Kept, Pruner, as_plugin
from retrieval_core.types import Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Sized
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts

DEFAULT_THRESHOLD = 0.00003
"""Just above the local model's score of a sentence that has nothing to do with the question, about 0.00001.

Measured on 162 financial questions with the five best passages of each: see ``docs/dev/measurements.md``."""

DEFAULT_COSINE = 0.55
"""For bge-small-en-v1.5, the default embedder: the cosines of other models lie elsewhere.

Measured on 162 financial questions with the five best passages of each: see ``docs/dev/measurements.md``."""

_BATCH_SIZE = 256

T = TypeVar("T")


def rows_of(values: Iterable[T], passages: Sequence[Sized]) -> tuple[tuple[T, ...], ...]:
    """Return the values of all sentences, in their order, as one row for each passage."""
    following = iter(values)
    return tuple(tuple(islice(following, len(passage))) for passage in passages)


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


class EmbedderPruner(Pruner):
    """Keeps the sentences whose cosine with the question reaches a threshold; a :class:`~retrieval_core.ports.Pruner`.

    Each sentence is embedded by itself, as passages are.

    Args:
        embedder: Stays the caller's to close. A call of the pruner is two of the embedder: one for the question, and
            one for the sentences.
        threshold: The least cosine of a sentence that is kept, in [-1, 1]. It belongs to the embedder's model:
            :data:`DEFAULT_COSINE` is for the default one.

    Raises:
        InvalidParameterError: The threshold is not in [-1, 1].
    """

    def __init__(self, embedder: Embedder, *, threshold: float) -> None:
        if not -1 <= threshold <= 1:
            msg = f"threshold must be in [-1, 1], got {threshold}"
            raise InvalidParameterError(msg)
        self._embedder = as_plugin(embedder, Embedder)
        self._threshold = threshold

    @classmethod
    def from_settings(cls, settings: None, parts: AdapterParts) -> Self:  # noqa: ARG003 - it has none
        """Make it over the index's embedder.

        Raises:
            ConfigurationError: There is no embedder, or its model needs a threshold that is not set.
        """
        from retrieval_core.adapters.embedders.local import BGE_SMALL_EN  # noqa: PLC0415 - for the name of its model

        threshold: float | None = parts.section.threshold
        if parts.embedder is None:
            msg = "pruner.kind is 'embedder', and embedder.kind is 'none': set either of them to another kind"
            raise ConfigurationError(msg, missing_keys=("embedder.kind",))
        if threshold is None and not parts.embedder.id.startswith(f"{BGE_SMALL_EN.files.name}@"):
            msg = (
                f"pruner.threshold: needed for the embedder {parts.embedder.id}, which has no default. Set it to the "
                "lowest cosine of a sentence that is kept"
            )
            raise ConfigurationError(msg, missing_keys=("pruner.threshold",))
        return cls(parts.embedder, threshold=DEFAULT_COSINE if threshold is None else threshold)

    @property
    def id(self) -> str:
        """Names embedder and threshold."""
        return f"sentences {self._embedder.id}>={self._threshold}"

    @property
    def batch_size(self) -> int:
        """The most sentences of one call."""
        return _BATCH_SIZE

    async def _keep(self, query: str, passages: Sequence[Sequence[str]]) -> Kept:
        """Judge the sentences of passages, each by itself."""
        sentences = [sentence for passage in passages for sentence in passage]
        if not sentences:
            return Kept(tuple(() for _ in passages))
        question = await self._embedder.embed_query(query)
        vectors = await self._embedder.embed_texts(sentences)
        cosines: list[float] = (vectors @ question).tolist()
        return Kept(
            rows_of([cosine >= self._threshold for cosine in cosines], passages), scores=rows_of(cosines, passages)
        )
