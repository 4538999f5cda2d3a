"""Watching the pipeline from outside: spans and measurements, behind one small interface."""

from retrieval_core.observe.metrics import Histogram, Metrics, MetricsSnapshot, StageMetrics
from retrieval_core.observe.observer import Observer, Span
from retrieval_core.observe.otel import OpenTelemetryObserver
from retrieval_core.observe.several import SeveralObservers
from retrieval_core.observe.trace import explain

__all__ = [
    "Histogram",
    "Metrics",
    "MetricsSnapshot",
    "Observer",
    "OpenTelemetryObserver",
    "SeveralObservers",
    "Span",
    "StageMetrics",
    "explain",
]
