"""A retriever of LlamaIndex as a source of passages: beside an index, or in place of one."""

from __future__ import annotations

import time
from itertools import pairwise
from math import isfinite
from secrets import token_hex
from typing import TYPE_CHECKING

from llama_index.core.retrievers import BaseRetriever

from llama_index.retrievers.retrieval_core.adapters._calls import PartCalls
from llama_index.retrievers.retrieval_core.checks import check_kind
from llama_index.retrievers.retrieval_core.convert import chunk_with_node
from retrieval_core.errors import IncompleteSearchError, InvalidParameterError, SearchError, StoreError
from retrieval_core.ports import Candidate, Fetched, Retriever, Store, StoreInfo
from retrieval_core.run.caching import LruCache
from retrieval_core.types.filters import chunk_fields, matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import Change, FetchRequest, SearchRequest, Side
    from retrieval_core.types import Chunk

MOST_REMEMBERED = 4096
"""Passages that can be read by id after the retriever gave them."""
REMEMBERED_SECONDS = 300.0


class LlamaIndexRetriever(Retriever):
    """Search a retriever of LlamaIndex beside an index, as a :class:`~retrieval_core.ports.Retriever`.

    The retriever decides how many nodes it returns (``similarity_top_k``); the best are used. Scores that fall in its
    order are kept. Otherwise, or if scores are missing, they are 1, 1/2, 1/3 ….

    Args:
        retriever: You close it.
        name: Names the retriever in errors and locations.
        is_async: True for one whose ``aretrieve`` leaves the event loop free. By default ``retrieve`` is called in a
            thread, as most retrievers of LlamaIndex await something that blocks.

    Raises:
        InvalidParameterError: ``retriever`` is no retriever of LlamaIndex.
    """

    def __init__(self, retriever: BaseRetriever, *, name: str | None = None, is_async: bool = False) -> None:
        check_kind(retriever, "retriever", BaseRetriever, "a retriever of LlamaIndex, as index.as_retriever() gives it")
        self._retriever = retriever
        self._id = name or f"llama-index/{type(retriever).__name__}/{token_hex(8)}"
        self._who = type(retriever).__name__
        self._calls = PartCalls(retriever, is_async=is_async)

    @property
    def id(self) -> str:
        """Always empty: a retriever reports no version, so results with its nodes are not cached."""
        return ""

    async def _search(self, query: str, k: int = 10) -> Sequence[Candidate]:
        """Find passages, best first, each with its chunk; at most ``k``.

        Raises:
            IncompleteSearchError: Some of its nodes cannot be read; it carries the others.
            ServiceError: The retriever failed.
        """
        found, problem = await self.found(query)
        if problem is not None:
            raise IncompleteSearchError(problem, found[:k])
        return found[:k]

    async def found(self, query: str) -> tuple[tuple[Candidate, ...], str | None]:
        """Return all that the retriever gives for a question, and what is wrong with nodes that were left out.

        Raises:
            ServiceError: The retriever failed.
        """
        retriever = self._retriever
        nodes = await self._calls.either(retriever.aretrieve, retriever.retrieve, query)
        chunks: dict[str, tuple[Chunk, float]] = {}
        problems: list[str] = []
        for item, score in zip(nodes, falling([item.score for item in nodes]), strict=True):
            try:
                chunk = chunk_with_node(item.node)
            except InvalidParameterError as error:
                problems.append(str(error))
            else:
                chunks.setdefault(chunk.id, (chunk, score))
        told = f"{self._who}: {len(problems)} nodes could not be read: {problems[0]}" if problems else None
        return tuple([Candidate(name, score, chunk) for name, (chunk, score) in chunks.items()]), told

    async def aclose(self) -> None:
        """Stop the threads; the retriever stays open. Closing twice is fine."""
        await self._calls.aclose()


class LlamaIndexRetrieverStore(Store):
    """Search a retriever of LlamaIndex in place of an index, as a read-only :class:`~retrieval_core.ports.Store`.

    The retriever gets the query as text, so it counts as keyword search. It can't be given a filter, so its nodes are
    tested afterwards. If too few of them match, the result reports that there may be others. Chunks can be read by id
    for five minutes after a search; there are no neighbors.

    Args:
        retriever: As in :class:`LlamaIndexRetriever`, like the other arguments.

    Raises:
        InvalidParameterError: As :class:`LlamaIndexRetriever`.
    """

    sides: frozenset[Side] = frozenset({"lexical"})

    def __init__(self, retriever: BaseRetriever, *, name: str | None = None, is_async: bool = False) -> None:
        self._retriever = LlamaIndexRetriever(retriever, name=name, is_async=is_async)
        self._who = type(retriever).__name__
        self._remembered: LruCache[str, Chunk] = LruCache(MOST_REMEMBERED, REMEMBERED_SECONDS, time.monotonic)

    @property
    def id(self) -> str:
        """The retriever's."""
        return self._retriever.id

    async def _upsert(self, change: Change) -> None:  # noqa: ARG002 - as the port has it
        raise StoreError(f"{self._who} is a retriever of LlamaIndex, which is only read")

    async def _delete(self, document_ids: Sequence[str]) -> int:  # noqa: ARG002 - as the port has it
        raise StoreError(f"{self._who} is a retriever of LlamaIndex, which is only read")

    async def _describe(self) -> StoreInfo:
        """Refuse: a retriever does not tell what it searches."""
        msg = f"{self._who} is a retriever of LlamaIndex, which does not tell what it searches"
        raise StoreError(msg)

    async def _search(self, request: SearchRequest) -> tuple[Candidate, ...]:
        """Return the retriever's passages that match, in its order.

        Raises:
            IncompleteSearchError: There may be others that match, or nodes could not be read; it carries the
                results so far.
            SearchError: It was to be searched with a vector.
            ServiceError: The retriever failed.
        """
        if request.text is None:
            msg = f"{self._who} is a retriever, which takes a question and no vector; set search.mode = 'lexical'"
            raise SearchError(msg)
        found, problem = await self._retriever.found(request.text)
        for item in found:
            if item.chunk is not None:
                self._remembered.set(item.chunk_id, item.chunk)
        passing = [
            item for item in found if item.chunk is not None and matches(request.filter, chunk_fields(item.chunk))
        ]
        problems = [] if problem is None else [problem]
        if len(passing) < min(request.limit, len(found)):
            problems.append(
                f"of {len(found)} nodes that {self._who} gave {len(passing)} match the filter, which it cannot "
                "evaluate, and there may be others; have it give more (similarity_top_k), or let it filter itself"
            )
        if problems:
            raise IncompleteSearchError("; ".join(problems), passing[: request.limit])
        return tuple(passing[: request.limit])

    async def _fetch(self, request: FetchRequest) -> Fetched:
        """Return those of the requested chunks that the retriever gave in the last minutes, and that match."""
        known = {name: chunk for name in request.chunk_ids if (chunk := self._remembered.get(name)) is not None}
        return Fetched({name: chunk for name, chunk in known.items() if matches(request.filter, chunk_fields(chunk))})

    async def _close(self) -> None:
        """Stop the threads; the retriever stays open."""
        await self._retriever.aclose()


def falling(scores: Sequence[float | None]) -> list[float]:
    """Return scores if they fall in their order, and otherwise 1, 1/2, 1/3 and so on."""
    return in_order(scores) or [1 / place for place in range(1, len(scores) + 1)]


def in_order(scores: Sequence[float | None]) -> list[float] | None:
    """Return scores if all are numbers and fall in their order."""
    numbers = [float(score) for score in scores if score is not None and isfinite(score)]
    falls = len(numbers) == len(scores) and all(one >= other for one, other in pairwise(numbers))
    return numbers if falls else None
