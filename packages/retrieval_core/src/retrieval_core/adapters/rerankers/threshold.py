"""The base of the relevance filter and the pruner that compare a reranker's scores with a threshold."""

from __future__ import annotations

from typing import ClassVar

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ports import Reranker, as_plugin


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
