"""The port for retrievers, which are searched beside an index, or in place of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports.index_values import Candidate


class Retriever(Protocol):
    """Finds passages in its own way: an index of somebody else's, a web search, a table of answers."""

    @property
    def id(self) -> str:
        """Names method and settings: two retrievers with the same id find the same."""
        ...

    async def search(self, query: str, k: int = 10) -> Sequence[Candidate]:
        """Find passages.

        Args:
            query: The normalised question.
            k: The most to return, at least 1.

        Returns:
            Best first, each with its chunk and a score of which higher is better; the pipeline applies the filter.

        Raises:
            ServiceError: The provider failed.
        """
        ...
