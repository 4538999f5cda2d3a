"""Counters and histograms kept in the process, to be read as a value or as text for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import accumulate
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping

    from retrieval_core.types import RetrievalResult, StageRecord

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper limits that durations are counted between, from a search in memory to the default deadline of a query."""
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


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
        """The mean of all durations in seconds, exactly; ``None`` if there are none."""
        count = self.count
        return self.total_seconds / count if count else None

    def quantile(self, share: float) -> float | None:
        """Estimate a quantile of the durations in seconds; ``None`` if there are none.

        It is interpolated linearly between the limits around it, as by Prometheus' ``histogram_quantile``. It never
        contradicts the sum of all durations: each quantile of a single duration is that duration. Above the last
        limit, the last limit is returned.

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
    """Counters of the calls of one stage.

    Attributes:
        calls: Calls that ended, each with all its attempts.
        attempts: Attempts, including retries.
        failures: Calls that failed after all retries.
        cancellations: Calls that were cancelled, for instance by their caller; not among ``calls``.
        seconds: Durations of the calls.
        input_tokens: Tokens that models read, as far as reported.
        output_tokens: Tokens that models wrote, as far as reported.
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
        degraded_queries: Answered queries with degraded results.
        degraded: Answered queries by the stage that was degraded.
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
        """Queries in progress."""
        return self.queries - self.answered - self.failed - self.cancelled


@dataclass(frozen=True, slots=True)
class Latency:
    """How long something took, in seconds; ``None`` where it never happened.

    Attributes:
        count: How often it happened.
        mean: Exactly.
        p50: Half of the durations are not above this; interpolated, see
            :meth:`~retrieval_core.run.observe.Histogram.quantile`.
        p95: So are 95 of 100.
    """

    count: int
    mean: float | None
    p50: float | None
    p95: float | None

    @classmethod
    def of(cls, durations: Histogram) -> Latency:
        """Return what a histogram comes to."""
        return cls(durations.count, durations.mean, durations.quantile(0.5), durations.quantile(0.95))


@dataclass(frozen=True, slots=True)
class Summary:
    """Rates and latencies of a snapshot. A rate is in [0, 1], or ``None`` if nothing was counted.

    Attributes:
        ended: Queries that were answered, or raised an error. Those whose caller went away are neither.
        error_rate: Share of them that raised an error.
        cache_hit_rate: Share of the answered ones whose result came from the cache.
        degraded_rate: Share of the answered ones with degraded results.
        query: Latency of the answered ones.
        stages: Latency of the calls of each stage, with all retries.
    """

    ended: int
    error_rate: float | None
    cache_hit_rate: float | None
    degraded_rate: float | None
    query: Latency
    stages: Mapping[str, Latency]

    @classmethod
    def of(cls, seen: MetricsSnapshot) -> Summary:
        """Return the rates and latencies of a snapshot."""
        ended = seen.answered + seen.failed
        return cls(
            ended=ended,
            error_rate=_share(seen.failed, ended),
            cache_hit_rate=_share(seen.cache_hits, seen.answered),
            degraded_rate=_share(seen.degraded_queries, seen.answered),
            query=Latency.of(seen.seconds),
            stages={stage: Latency.of(metrics.seconds) for stage, metrics in sorted(seen.stages.items())},
        )


class Metrics:
    """Count queries, latencies and failures; an :class:`~retrieval_core.run.observe.Observer`.

    One instance can observe several pipelines, from any threads, and counts them together. It keeps only numbers, no
    text of queries, and a fixed number for each stage, so that it does not grow. Calls that several callers share count
    once; the queries of those callers each count.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = _Counts()

    @contextmanager
    def query(self) -> Generator[None]:
        """Count a query, and its outcome if it has no result."""
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

    def span(self, stage: str) -> _CountedSpan:
        """Count a call."""
        return _CountedSpan(self, stage)

    def answered(self, result: RetrievalResult) -> None:
        """Count a result."""
        lacking = frozenset([entry.stage for entry in result.degraded])
        self.finished(result.latency_ms / 1000, from_cache=result.from_cache, degraded=lacking)

    def finished(self, seconds: float, *, from_cache: bool = False, degraded: Collection[str] = ()) -> None:
        """Count an answered query.

        Args:
            seconds: Its duration.
            from_cache: Whether it came from the cache.
            degraded: The degraded stages, each once.
        """
        with self._lock:
            counts = self._counts
            counts.answered += 1
            counts.cache_hits += from_cache
            counts.degraded_queries += bool(degraded)
            for stage in degraded:
                counts.degraded[stage] = counts.degraded.get(stage, 0) + 1
            counts.seconds.add(seconds)

    def cancelled(self, stage: str) -> None:
        """Count a call that was cancelled."""
        with self._lock:
            self._counts.of(stage).cancellations += 1

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
        return "".join(f"{line}\n" for line in _exposition(self.snapshot()))


class _CountedSpan:
    __slots__ = ("_metrics", "_stage")

    def __init__(self, metrics: Metrics, stage: str) -> None:
        self._metrics = metrics
        self._stage = stage

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._metrics.cancelled(self._stage)

    def end(self, record: StageRecord, error: Exception | None = None) -> None:  # noqa: ARG002 - the protocol's
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
        return StageMetrics(**_values(self, seconds=self.seconds.frozen()))


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
        if (counts := self.stages.get(stage)) is None:
            counts = self.stages[stage] = _StageCounts()
        return counts

    def frozen(self) -> MetricsSnapshot:
        stages = {stage: counts.frozen() for stage, counts in self.stages.items()}
        return MetricsSnapshot(
            **_values(self, degraded=dict(self.degraded), seconds=self.seconds.frozen(), stages=stages)
        )


def _values(counts: _StageCounts | _Counts, **frozen: Any) -> dict[str, Any]:
    return {one.name: getattr(counts, one.name) for one in fields(counts)} | frozen


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _exposition(snapshot: MetricsSnapshot) -> Iterator[str]:
    """Yield the lines of https://prometheus.io/docs/instrumenting/exposition_formats/, each family with its type."""
    stages = sorted(snapshot.stages.items())
    ends = (("answered", snapshot.answered), ("failed", snapshot.failed), ("cancelled", snapshot.cancelled))
    yield from _family("retrieval_queries_total", "counter", "Finished queries by outcome.")
    yield from (_sample("retrieval_queries_total", count, outcome=outcome) for outcome, count in ends)
    yield from _family("retrieval_queries_in_progress", "gauge", "Queries in progress.")
    yield _sample("retrieval_queries_in_progress", snapshot.in_progress)
    yield from _family("retrieval_cache_hits_total", "counter", "Answered queries whose result came from the cache.")
    yield _sample("retrieval_cache_hits_total", snapshot.cache_hits)
    yield from _family("retrieval_degraded_queries_total", "counter", "Answered queries with degraded results.")
    yield _sample("retrieval_degraded_queries_total", snapshot.degraded_queries)
    yield from _family("retrieval_degraded_total", "counter", "Answered queries with a degraded stage.")
    for stage, count in sorted(snapshot.degraded.items()):
        yield _sample("retrieval_degraded_total", count, stage=stage)
    yield from _family("retrieval_query_duration_seconds", "histogram", "Duration of answered queries.")
    yield from _histogram("retrieval_query_duration_seconds", snapshot.seconds)
    yield from _family("retrieval_stage_duration_seconds", "histogram", "Duration of calls with all retries.")
    for stage, metrics in stages:
        yield from _histogram("retrieval_stage_duration_seconds", metrics.seconds, stage=stage)
    counters = (
        ("retrieval_stage_attempts_total", "Attempts of calls to backends.", "attempts"),
        ("retrieval_stage_failures_total", "Calls that failed after all retries.", "failures"),
        ("retrieval_stage_cancellations_total", "Calls that were cancelled.", "cancellations"),
    )
    for name, text, attribute in counters:
        yield from _family(name, "counter", text)
        yield from (_sample(name, getattr(metrics, attribute), stage=stage) for stage, metrics in stages)
    yield from _family("retrieval_tokens_total", "counter", "Tokens that models read and wrote, as far as reported.")
    for stage, metrics in stages:
        for kind, count in (("input", metrics.input_tokens), ("output", metrics.output_tokens)):
            if count:
                yield _sample("retrieval_tokens_total", count, stage=stage, type=kind)


def _family(name: str, kind: str, text: str) -> Iterable[str]:
    return (f"# HELP {name} {text}", f"# TYPE {name} {kind}")


def _sample(name: str, value: float, **labels: str) -> str:
    inside = ",".join(f'{label}="{text.translate(_ESCAPES)}"' for label, text in labels.items())
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def _histogram(name: str, histogram: Histogram, **labels: str) -> Iterator[str]:
    limits = (*map(str, histogram.limits), "+Inf")
    for limit, count in zip(limits, accumulate(histogram.counts), strict=True):
        yield _sample(f"{name}_bucket", count, **labels, le=limit)
    yield _sample(f"{name}_sum", histogram.total_seconds, **labels)
    yield _sample(f"{name}_count", histogram.count, **labels)
