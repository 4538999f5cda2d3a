"""Counts, rates and times of queries under the specification's names."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retrieval_core.run.observe.metrics import Metrics, Summary
from retrieval_core.run.runner import STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from retrieval_core.types import RetrievalResult


@dataclass(slots=True)
class _Block:
    """A block of :meth:`PerformanceTracker.track_query`, and the results of the pipelines that were asked in it."""

    tracker: PerformanceTracker
    from_cache: list[bool] = field(default_factory=list[bool])
    degraded: list[str] = field(default_factory=list[str])
    is_over: bool = False


# Contexts are carried over into tasks and threads.
_BLOCKS: ContextVar[tuple[_Block, ...]] = ContextVar("retrieval_core_tracked_queries", default=())


class PerformanceTracker(Metrics):
    """:class:`~retrieval_core.run.observe.Metrics` with counts, rates and mean times by the specification's names.

    It may watch several pipelines, from any threads and event loops. Each query counts once, however it ends.

    Args:
        now: Returns the time in seconds, for the durations of :meth:`track_query`.
    """

    def __init__(self, *, now: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self._now = now

    @property
    def metrics(self) -> dict[str, float]:
        """All numbers of one moment, 0 as long as there is nothing to count.

        - ``query_count``: queries that were answered or raised an error; not those whose caller went away,
        - ``avg_response_time``: mean seconds of the answered ones,
        - ``cache_hit_rate``: share of the answered ones whose result came from the cache, in [0, 1],
        - ``error_rate``: share of ``query_count`` that raised an error, in [0, 1],
        - ``embedding_time``, ``retrieval_time``, ``reranking_time``, ``synthesis_time``: mean seconds of a call of the
          stages in :data:`~retrieval_core.run.runner.STAGES`, with all its attempts. Calls run side by side, so
          these do not add up to the whole.
        """
        seen = self.snapshot()
        summary = Summary.of(seen)
        numbers: dict[str, float] = {
            "query_count": summary.ended,
            "avg_response_time": summary.query.mean or 0.0,
            "cache_hit_rate": summary.cache_hit_rate or 0.0,
            "error_rate": summary.error_rate or 0.0,
        }
        for name, stages in STAGES.items():
            durations = [seen.stages[stage].seconds for stage in stages if stage in seen.stages]
            count = sum(one.count for one in durations)
            numbers[name] = sum(one.total_seconds for one in durations) / count if count else 0.0
        return numbers

    @property
    def summary(self) -> Summary:
        """Rates, means and quantiles of this moment."""
        return Summary.of(self.snapshot())

    @contextmanager
    def track_query(self, query: str) -> Generator[None]:  # noqa: ARG002 - the specification's; no text is kept
        """Count the block as one query, answered or failed.

        Use it for code outside a pipeline. Queries in the block to a pipeline with this tracker are part of the same
        query, and only their cache hits and degradations count. A nested block is part of the outer one.

        Args:
            query: The query, of which nothing is kept.
        """
        if self._block() is not None:
            yield
            return
        block = _Block(self)
        started = self._now()
        with self.query():
            token = _BLOCKS.set((*_BLOCKS.get(), block))
            try:
                yield
            finally:
                _BLOCKS.reset(token)
                block.is_over = True  # queries that it left running count for themselves
        is_cached = bool(block.from_cache) and all(block.from_cache)
        self.finished(self._now() - started, from_cache=is_cached, degraded=frozenset(block.degraded))

    @contextmanager
    def query(self) -> Generator[None]:
        """Count a query, unless it is part of one that :meth:`track_query` counts."""
        if self._block() is not None:
            yield
            return
        with super().query():
            yield

    def answered(self, result: RetrievalResult) -> None:
        """Count a result, or add it to the query that it is part of."""
        block = self._block()
        if block is None:
            super().answered(result)
            return
        block.from_cache.append(result.from_cache)
        block.degraded.extend(entry.stage for entry in result.degraded)

    def _block(self) -> _Block | None:
        """Return the block of this tracker that the running code is part of; ``None`` if there is none."""
        return next((one for one in _BLOCKS.get() if one.tracker is self and not one.is_over), None)
