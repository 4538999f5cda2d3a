"""Observers of a pipeline: spans, metrics, OpenTelemetry and memory."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retrieval_core.run.observe.memory import (
        ComponentMemory,
        Measurable,
        MemoryUsage,
        memory_of,
        monitor_memory_usage,
    )
    from retrieval_core.run.observe.metrics import Histogram, Latency, Metrics, MetricsSnapshot, StageMetrics, Summary
    from retrieval_core.run.observe.observer import Observer, SeveralObservers, StageSpan, explain
    from retrieval_core.run.observe.otel import OpenTelemetryObserver

__all__ = [
    "ComponentMemory", "Histogram", "Latency", "Measurable", "MemoryUsage", "Metrics", "MetricsSnapshot", "Observer",
    "OpenTelemetryObserver", "SeveralObservers", "StageMetrics", "StageSpan", "Summary", "explain", "memory_of",
    "monitor_memory_usage",
]  # fmt: skip

_HOMES = {
    "memory": {"ComponentMemory", "Measurable", "MemoryUsage", "memory_of", "monitor_memory_usage"},
    "metrics": {"Histogram", "Latency", "Metrics", "MetricsSnapshot", "StageMetrics", "Summary"},
    "observer": {"Observer", "SeveralObservers", "StageSpan", "explain"},
    "otel": {"OpenTelemetryObserver"},
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a pipeline that nobody watches needs none of them."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    """Return the public names, also those that were not used yet."""
    return sorted({*globals(), *__all__})
