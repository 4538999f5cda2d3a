"""What counters come to: rates, means and quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.run.observe.metrics import Histogram, MetricsSnapshot


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
    """What the counters of a snapshot come to; a rate is in [0, 1], and ``None`` where nothing was counted.

    Attributes:
        ended: Queries that were answered, or raised an error. Those whose caller went away are neither.
        error_rate: Share of them that raised an error.
        cache_hit_rate: Share of the answered ones whose result came from the cache.
        degraded_rate: Share of the answered ones with at least one thing done without.
        query: How long the answered ones took.
        stages: How long the calls of each stage took, with all their attempts.
    """

    ended: int
    error_rate: float | None
    cache_hit_rate: float | None
    degraded_rate: float | None
    query: Latency
    stages: Mapping[str, Latency]

    @classmethod
    def of(cls, seen: MetricsSnapshot) -> Summary:
        """Return what a snapshot comes to."""
        ended = seen.answered + seen.failed
        return cls(
            ended=ended,
            error_rate=_share(seen.failed, ended),
            cache_hit_rate=_share(seen.cache_hits, seen.answered),
            degraded_rate=_share(seen.degraded_queries, seen.answered),
            query=Latency.of(seen.seconds),
            stages={stage: Latency.of(metrics.seconds) for stage, metrics in sorted(seen.stages.items())},
        )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
