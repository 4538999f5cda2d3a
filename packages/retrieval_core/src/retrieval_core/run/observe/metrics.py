"""Counters and histograms kept in the process, to be read as a value or as text for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError
from retrieval_core.run.observe.buckets import SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping

    from retrieval_core.types import RetrievalResult, StageRecord


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many durations fell between which limits.

    Attributes:
        limits: Upper limits in seconds, ascending; a duration that equals a limit falls below it.
        counts: Durations between each limit and the one before, and as the last item those above all limits.
        total_seconds: The sum of all durations.
    """

    limits: tuple[float, ...] = SECONDS
    counts: tuple[int, ...] = (0,) * (len(SECONDS) + 1)
    total_seconds: float = 0.0

    @property
    def count(self) -> int:
        """How many durations there are."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """The mean of all durations in seconds, exactly; ``None`` where there are none."""
        count = self.count
        return self.total_seconds / count if count else None

    def quantile(self, share: float) -> float | None:
        """Estimate the duration in seconds that so many of the durations do not exceed; ``None`` where there are none.

        It is interpolated linearly between the limits around it, as Prometheus' ``histogram_quantile`` does, but within
        what the sum of all durations allows: where there is one duration, each quantile is that one. Above the last
        limit nothing is known but that, and the last limit is returned.

        Args:
            share: From 0 to 1; 0.5 is the median.

        Raises:
            InvalidParameterError: The share is outside its range.
        """
        if not 0 <= share <= 1:
            msg = f"share must be from 0 to 1, got {share!r:.40}"
            raise InvalidParameterError(msg)
        count = self.count
        if not count:
            return None
        lowers = (0.0, *self.limits)
        least = sum(lower * inside for lower, inside in zip(lowers, self.counts, strict=True))
        most = sum(limit * inside for limit, inside in zip((*self.limits, inf), self.counts, strict=True) if inside)
        wanted, below = share * count, 0
        for lower, limit, inside in zip(lowers, self.limits, self.counts, strict=False):
            if inside and below + inside >= wanted:
                # One duration is longest where all others are as short as can be, and the reverse.
                high = max(lower, min(limit, self.total_seconds - (least - lower)))
                low = min(high, max(lower, self.total_seconds - (most - limit)))
                return low + (high - low) * max(0.0, wanted - below) / inside
            below += inside
        return self.limits[-1]


@dataclass(frozen=True, slots=True)
class StageMetrics:
    """What the calls of one stage came to.

    Attributes:
        calls: Calls that ended, with all their attempts.
        attempts: How often the backend was asked.
        failures: Calls that failed in the end.
        cancellations: Calls that were cancelled, as when their caller goes away; not among ``calls``.
        seconds: How long the calls took.
        input_tokens: What models read, as far as they tell.
        output_tokens: What models wrote, likewise.
    """

    calls: int = 0
    attempts: int = 0
    failures: int = 0
    cancellations: int = 0
    seconds: Histogram = Histogram()
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All counters at one moment.

    Attributes:
        queries: Queries that began.
        answered: Queries that were answered, from wherever.
        failed: Queries that raised an error.
        cancelled: Queries whose caller went away.
        cache_hits: Answered queries whose result came from the cache.
        degraded_queries: Answered queries with at least one thing done without.
        degraded: Answered queries that lacked something of a stage, by stage.
        seconds: How long the answered queries took.
        stages: By stage.
    """

    queries: int
    answered: int
    failed: int
    cancelled: int
    cache_hits: int
    degraded_queries: int
    degraded: Mapping[str, int]
    seconds: Histogram
    stages: Mapping[str, StageMetrics]

    @property
    def in_progress(self) -> int:
        """Queries that have not ended."""
        return self.queries - self.answered - self.failed - self.cancelled


class Metrics:
    """An :class:`~retrieval_core.run.observe.Observer` that counts.

    One may watch several pipelines, from any threads; it then counts them together. It keeps numbers alone, no text of
    queries, and a fixed number of them for each stage, so that it does not grow. Calls that several callers share count
    once, as they are made once; the queries of those callers each count.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = _Counts()

    @contextmanager
    def query(self) -> Generator[None]:
        """Count a query, and how it ends where that is not with a result."""
        counts = self._counts
        with self._lock:
            counts.queries += 1
        try:
            yield
        except Exception:
            with self._lock:
                counts.failed += 1
            raise
        except BaseException:
            with self._lock:
                counts.cancelled += 1
            raise

    @contextmanager
    def span(self, stage: str) -> Generator[_CountedSpan]:
        """Count a call."""
        try:
            yield _CountedSpan(self)
        except BaseException:
            with self._lock:
                self._counts.of(stage).cancellations += 1
            raise

    def answered(self, result: RetrievalResult) -> None:
        """Count a result."""
        lacking = frozenset([entry.stage for entry in result.degraded])
        self.finished(result.latency_ms / 1000, from_cache=result.from_cache, degraded=lacking)

    def finished(self, seconds: float, *, from_cache: bool = False, degraded: Collection[str] = ()) -> None:
        """Count an answer by what is counted of it.

        Args:
            seconds: How long it took.
            from_cache: Whether it came from the cache.
            degraded: The stages that something was done without of, each once.
        """
        with self._lock:
            counts = self._counts
            counts.answered += 1
            counts.cache_hits += from_cache
            counts.degraded_queries += bool(degraded)
            for stage in degraded:
                counts.degraded[stage] = counts.degraded.get(stage, 0) + 1
            counts.seconds.add(seconds)

    def ended(self, record: StageRecord) -> None:
        """Count a call that ended."""
        with self._lock:
            stage = self._counts.of(record.stage)
            stage.calls += 1
            stage.attempts += record.attempts
            stage.failures += record.error is not None
            stage.seconds.add(record.milliseconds / 1000)
            if record.usage is not None:
                stage.input_tokens += record.usage.input_tokens
                stage.output_tokens += record.usage.output_tokens

    def snapshot(self) -> MetricsSnapshot:
        """Return all counters as they are now, of one moment."""
        with self._lock:
            return self._counts.frozen()

    def prometheus(self) -> str:
        """Return all counters in Prometheus' text format, version 0.0.4, durations in seconds.

        Serve it as ``text/plain; version=0.0.4; charset=utf-8``.
        """
        from retrieval_core.run.observe.exposition import exposition  # noqa: PLC0415 - most programs never ask for it

        return exposition(self.snapshot())


class _CountedSpan:
    """One call that is under way."""

    __slots__ = ("_metrics",)

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def end(self, record: StageRecord, error: Exception | None = None) -> None:  # noqa: ARG002 - the protocol's
        """Count what the call came to."""
        self._metrics.ended(record)


@dataclass(slots=True)
class _Durations:
    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def frozen(self) -> Histogram:
        return Histogram(SECONDS, tuple(self.counts), self.total)


@dataclass(slots=True)
class _StageCounts:
    calls: int = 0
    attempts: int = 0
    failures: int = 0
    cancellations: int = 0
    seconds: _Durations = field(default_factory=_Durations)
    input_tokens: int = 0
    output_tokens: int = 0

    def frozen(self) -> StageMetrics:
        return StageMetrics(
            self.calls,
            self.attempts,
            self.failures,
            self.cancellations,
            self.seconds.frozen(),
            self.input_tokens,
            self.output_tokens,
        )


@dataclass(slots=True)
class _Counts:
    queries: int = 0
    answered: int = 0
    failed: int = 0
    cancelled: int = 0
    cache_hits: int = 0
    degraded_queries: int = 0
    degraded: dict[str, int] = field(default_factory=dict[str, int])
    seconds: _Durations = field(default_factory=_Durations)
    stages: dict[str, _StageCounts] = field(default_factory=dict[str, _StageCounts])

    def of(self, stage: str) -> _StageCounts:
        return self.stages.setdefault(stage, _StageCounts())

    def frozen(self) -> MetricsSnapshot:
        return MetricsSnapshot(
            queries=self.queries,
            answered=self.answered,
            failed=self.failed,
            cancelled=self.cancelled,
            cache_hits=self.cache_hits,
            degraded_queries=self.degraded_queries,
            degraded=dict(self.degraded),
            seconds=self.seconds.frozen(),
            stages={stage: counts.frozen() for stage, counts in self.stages.items()},
        )
