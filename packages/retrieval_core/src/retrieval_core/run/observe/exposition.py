"""Counters as text that Prometheus reads.

The format is the text-based one, version 0.0.4, of https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from retrieval_core.run.observe.metrics import Histogram, MetricsSnapshot

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def exposition(snapshot: MetricsSnapshot) -> str:
    """Return a snapshot as text, each family with its type and what it counts; every line ends with a line end."""
    return "".join(f"{line}\n" for line in _lines(snapshot))


def _lines(snapshot: MetricsSnapshot) -> Iterator[str]:
    stages = sorted(snapshot.stages.items())
    ends = (("answered", snapshot.answered), ("failed", snapshot.failed), ("cancelled", snapshot.cancelled))
    yield from _family("retrieval_queries_total", "counter", "Queries that ended, by how they ended.")
    yield from (_sample("retrieval_queries_total", count, outcome=outcome) for outcome, count in ends)
    yield from _family("retrieval_queries_in_progress", "gauge", "Queries that have not ended.")
    yield _sample("retrieval_queries_in_progress", snapshot.in_progress)
    yield from _family("retrieval_cache_hits_total", "counter", "Answered queries whose result came from the cache.")
    yield _sample("retrieval_cache_hits_total", snapshot.cache_hits)
    yield from _family("retrieval_degraded_queries_total", "counter", "Answered queries with something done without.")
    yield _sample("retrieval_degraded_queries_total", snapshot.degraded_queries)
    yield from _family("retrieval_degraded_total", "counter", "Answered queries that lacked something of a stage.")
    for stage, count in sorted(snapshot.degraded.items()):
        yield _sample("retrieval_degraded_total", count, stage=stage)
    yield from _family("retrieval_query_duration_seconds", "histogram", "How long answered queries took.")
    yield from _histogram("retrieval_query_duration_seconds", snapshot.seconds)
    yield from _family("retrieval_stage_duration_seconds", "histogram", "How long calls took, with all attempts.")
    for stage, metrics in stages:
        yield from _histogram("retrieval_stage_duration_seconds", metrics.seconds, stage=stage)
    counters = (
        ("retrieval_stage_attempts_total", "How often backends were asked.", "attempts"),
        ("retrieval_stage_failures_total", "Calls that failed in the end.", "failures"),
        ("retrieval_stage_cancellations_total", "Calls that were cancelled.", "cancellations"),
    )
    for name, text, attribute in counters:
        yield from _family(name, "counter", text)
        yield from (_sample(name, getattr(metrics, attribute), stage=stage) for stage, metrics in stages)
    yield from _family("retrieval_tokens_total", "counter", "Tokens that models read and wrote, as far as they tell.")
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
