"""Metrics of requests, for Prometheus."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from retrieval_core.run.observe.metrics import SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator

    from starlette.types import Scope

    from retrieval_core_mcp.http.envelope import Call

OTHER = "other"
"""The route of requests that no route takes: their paths are anything."""
METHODS = frozenset({"GET", "POST", "DELETE", "OPTIONS", "HEAD"})


class HttpMetrics:
    """Counts requests by route, method and status."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = own = CollectorRegistry()
        self._in_progress = Gauge("retrieval_http_requests_in_progress", "Requests that have not ended.", registry=own)
        self._ended = Counter(
            "retrieval_http_requests", "Requests that ended.", ("route", "method", "status"), registry=own
        )
        self._seconds = Histogram(
            "retrieval_http_request_seconds", "How long requests took.", ("route",), registry=own, buckets=SECONDS
        )

    @contextmanager
    def request(self, scope: Scope, call: Call) -> Generator[None]:
        """Count a request from its arrival to the end of its answer."""
        self._in_progress.inc()
        try:
            yield
        finally:
            self._in_progress.dec()
            route = getattr(scope.get("route"), "path", OTHER)
            method = scope["method"] if scope["method"] in METHODS else OTHER
            status = call.status or 499  # the client went away before there was an answer
            self._ended.labels(route, method, status).inc()
            self._seconds.labels(route).observe(time.monotonic() - call.arrived)

    def prometheus(self) -> str:
        """Return all metrics in Prometheus' text format, version 0.0.4."""
        return generate_latest(self._registry).decode()
