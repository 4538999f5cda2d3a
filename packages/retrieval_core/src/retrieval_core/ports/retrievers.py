"""The port for retrievers, which are searched beside an index, or in place of one."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from retrieval_core.ports.index_values import Candidate
from retrieval_core.ports.plugin import Plugin, are, call_plugin, calls_plugin, is_finite
from retrieval_core.types import Chunk

if TYPE_CHECKING:
    from collections.abc import Sequence


class Retriever(Plugin):
    """Finds chunks in its own way: an index of another program, a web search, a table of answers."""

    port_role = "the retriever"
    port_calls = ("search",)

    @calls_plugin
    async def search(self, query: str, k: int = 10) -> Sequence[Candidate]:
        """Find chunks.

        Args:
            query: The normalized query.
            k: The most to return, at least 1.

        Returns:
            Best first, each with its chunk and a score of which higher is better; the pipeline applies the filter.

        Raises:
            ServiceError: The provider failed, or gave no candidates.
        """
        answer = await call_plugin(self._search, query, k)
        if not are_candidates(answer):
            raise self._refuse(f"it gave {answer!r:.80}, which are no candidates")
        found = {item.chunk_id for item in answer[:k]}
        if not found <= {item.chunk_id for item in answer[:k] if item.chunk is not None}:
            raise self._refuse("it gave candidates without their chunks; make them Candidate(…, chunk=…)")
        return answer

    @abstractmethod
    async def _search(self, query: str, k: int) -> Sequence[Candidate]: ...


def are_candidates(answer: object) -> bool:
    """Return whether this is what a search should find."""
    return are(answer, _is_candidate)


def _is_candidate(item: Any) -> bool:
    if not isinstance(item, Candidate) or not isinstance(item.chunk_id, str) or not is_finite(item.score):  # pyright: ignore[reportUnnecessaryIsInstance]
        return False
    return item.chunk is None or (isinstance(item.chunk, Chunk) and item.chunk.id == item.chunk_id)  # pyright: ignore[reportUnnecessaryIsInstance]
