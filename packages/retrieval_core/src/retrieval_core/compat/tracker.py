"""Counts, rates and times of queries under the specification's names."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.run.observe.metrics import Metrics, Summary
from retrieval_core.run.runner import STAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from retrieval_core.run.observe.metrics import MetricsSnapshot
    from retrieval_core.run.observe.observer import StageSpan
    from retrieval_core.types import RetrievalResult


@dataclass(slots=True)
class _Tracked:
    """A query that is tracked from outside, and what the pipelines that it asks tell of it."""

    tracker: PerformanceTracker
    results: int = 0
    from_cache: int = 0
    degraded: set[str] = field(default_factory=set[str])
    is_over: bool = False


# What the running code is part of. Contexts are carried over into tasks and threads, so it holds there too.
_TRACKED: ContextVar[tuple[_Tracked, ...]] = ContextVar("retrieval_core_tracked_queries", default=())


class PerformanceTracker:
    """An :class:`~retrieval_core.run.observe.Observer` with counts, rates and mean times.

    It may watch several pipelines, from any threads and event loops. The numbers are those of
    :class:`~retrieval_core.run.observe.Metrics`, which it hands everything on to: each query counts once, however it
    ends.

    Args:
        now: Measures what :meth:`track_query` brackets, in seconds.
    """

    def __init__(self, *, now: Callable[[], float] = time.perf_counter) -> None:
        self._metrics = Metrics()
        self._now = now
        self._lock = Lock()

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

    def snapshot(self) -> MetricsSnapshot:
        """Return all counters as they are now, of one moment."""
        return self._metrics.snapshot()

    @contextmanager
    def track_query(self, query: str) -> Generator[None]:  # noqa: ARG002 - the specification's; no text is kept
        """Count the block as one query, answered or failed.

        Use it for code outside a pipeline. Queries in the block to a pipeline with this tracker are part of the same
        query, and only their cache hits and degradations count. A nested block is part of the outer one.

        Args:
            query: The question, of which nothing is kept.
        """
        if self._outer() is not None:
            yield
            return
        tracked = _Tracked(self)
        started = self._now()
        with self._metrics.query():
            token = _TRACKED.set((*_TRACKED.get(), tracked))
            try:
                yield
            finally:
                _TRACKED.reset(token)
                with self._lock:
                    tracked.is_over = True  # what it left running counts for itself
            cached = tracked.results > 0 and tracked.from_cache == tracked.results
            self._metrics.finished(self._now() - started, from_cache=cached, degraded=tracked.degraded)

    @contextmanager
    def query(self) -> Generator[None]:
        """Count a query, unless it is part of one that :meth:`track_query` counts."""
        if self._outer() is not None:
            yield
            return
        with self._metrics.query():
            yield

    def span(self, stage: str) -> AbstractContextManager[StageSpan]:
        """Count a call."""
        return self._metrics.span(stage)

    def answered(self, result: RetrievalResult) -> None:
        """Count a result, or keep what it says of the query that it is part of."""
        tracked = self._outer()
        if tracked is None:
            self._metrics.answered(result)
            return
        with self._lock:
            tracked.results += 1
            tracked.from_cache += result.from_cache
            tracked.degraded |= {entry.stage for entry in result.degraded}

    def _outer(self) -> _Tracked | None:
        """Return the query that the running code is part of, as far as this tracker counts it."""
        return next((one for one in _TRACKED.get() if one.tracker is self and not one.is_over), None)
