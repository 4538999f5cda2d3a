"""Watching the pipeline from outside: spans and measurements, behind one small interface."""

from retrieval_core.observe.memory import (
    ComponentMemory,
    Measurable,
    MemoryUsage,
    memory_of,
    monitor_memory_usage,
)
from retrieval_core.observe.metrics import Histogram, Metrics, MetricsSnapshot, StageMetrics
from retrieval_core.observe.observer import Observer, Span
from retrieval_core.observe.otel import OpenTelemetryObserver
from retrieval_core.observe.several import SeveralObservers
from retrieval_core.observe.summary import Latency, Summary
from retrieval_core.observe.totals import Totals, read_totals, reset_totals, totals_beside
from retrieval_core.observe.trace import explain
from retrieval_core.observe.tracker import PerformanceTracker
from retrieval_core.observe.usage import UsageStats

__all__ = [
    "ComponentMemory",
    "Histogram",
    "Latency",
    "Measurable",
    "MemoryUsage",
    "Metrics",
    "MetricsSnapshot",
    "Observer",
    "OpenTelemetryObserver",
    "PerformanceTracker",
    "SeveralObservers",
    "Span",
    "StageMetrics",
    "Summary",
    "Totals",
    "UsageStats",
    "explain",
    "memory_of",
    "monitor_memory_usage",
    "read_totals",
    "reset_totals",
    "totals_beside",
]
