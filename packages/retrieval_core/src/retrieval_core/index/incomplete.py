"""Searches of an index whose first documents are still being indexed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.adapters.stores.first_run import read_progress
from retrieval_core.errors import IncompleteSearchError, progress_of_first_run
from retrieval_core.run.sync import to_a_loop
from retrieval_core.types import Degradation

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.pipeline.options import QueryOptions
    from retrieval_core.pipeline.planning import Filters
    from retrieval_core.pipeline.query_engine import Retrieval
    from retrieval_core.pipeline.stages.plan import Plan
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Query, RetrievalResult


class IncompleteIndex:
    """Adds to each result how much of the index is there, while its first documents are being indexed.

    Args:
        place: The file or folder of the index.
        is_strict: Whether a search of an incomplete index fails.
    """

    def __init__(self, retrieval: Retrieval, place: Path, *, is_strict: bool) -> None:
        self._retrieval = retrieval
        self._place = place
        self._is_strict = is_strict
        self._is_complete = False

    def plan(self, filters: Filters, options: QueryOptions) -> Plan:
        """Put settings and a caller's arguments together."""
        return self._retrieval.plan(filters, options)

    async def retrieve(self, run: Run, query: Query, plan: Plan) -> RetrievalResult:
        """Return the result of a query.

        Raises:
            IncompleteSearchError: The index is incomplete, and that is an error.
            RetrievalError: As the retrieval.
        """
        note = None if self._is_complete else await note_of_progress(self._place)
        result = await self._retrieval.retrieve(run, query, plan)
        if note is None:
            self._is_complete = self._is_complete or bool(result.hits)
            return result
        if self._is_strict:
            raise IncompleteSearchError(note.reason, result.hits)
        return replace(result, degraded=(*result.degraded, note))


async def note_of_progress(place: Path) -> Degradation | None:
    """Return how much of a new index is there; ``None`` if it is not being made."""
    await to_a_loop()
    if (progress := await asyncio.to_thread(read_progress, place)) is None:
        return None
    return Degradation("index", f"{progress_of_first_run(*progress)}; the others can't be found yet")
