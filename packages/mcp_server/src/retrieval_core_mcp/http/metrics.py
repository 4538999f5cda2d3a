"""Counters of requests, in Prometheus' text format."""

from __future__ import annotations

import time
from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from retrieval_core.run.observe.metrics import SECONDS

if TYPE_CHECKING:
    from collections.abc import Generator

    from starlette.types import Scope

    from retrieval_core_mcp.http.envelope import Call
    from retrieval_core_mcp.http.gate import AnswerSender

OTHER = "other"
"""The route of requests that no route takes: their paths are anything."""
METHODS = frozenset({"GET", "POST", "DELETE", "OPTIONS", "HEAD"})


@dataclass(slots=True)
class _Durations:
    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    total: float = 0.0


class HttpMetrics:
    """Counts requests by route, method and status. All calls are from one event loop."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, int], int] = {}
        self._durations: dict[str, _Durations] = {}
        self._in_progress = 0

    @contextmanager
    def request(self, scope: Scope, answer: AnswerSender, call: Call) -> Generator[None]:
        """Count a request from its arrival to the end of its answer."""
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1
            route = getattr(scope.get("route"), "path", OTHER)
            method = scope["method"] if scope["method"] in METHODS else OTHER
            key = (route, method, answer.status or 499)  # the client went away before there was an answer
            self._answers[key] = self._answers.get(key, 0) + 1
            seconds = time.monotonic() - call.arrived
            durations = self._durations.setdefault(route, _Durations())
            durations.counts[bisect_left(SECONDS, seconds)] += 1
            durations.total += seconds

    def prometheus(self) -> str:
        """Return all counters in Prometheus' text format, version 0.0.4."""
        lines = [
            "# HELP retrieval_http_requests_in_progress Requests that have not ended.",
            "# TYPE retrieval_http_requests_in_progress gauge",
            f"retrieval_http_requests_in_progress {self._in_progress}",
            "# HELP retrieval_http_requests_total Requests that ended.",
            "# TYPE retrieval_http_requests_total counter",
        ]
        for (route, method, status), count in sorted(self._answers.items()):
            labels = f'route="{route}",method="{method}",status="{status}"'
            lines.append(f"retrieval_http_requests_total{{{labels}}} {count}")
        lines += [
            "# HELP retrieval_http_request_seconds How long requests took.",
            "# TYPE retrieval_http_request_seconds histogram",
        ]
        for route, durations in sorted(self._durations.items()):
            for limit, count in zip((*SECONDS, "+Inf"), accumulate(durations.counts), strict=True):
                lines.append(f'retrieval_http_request_seconds_bucket{{route="{route}",le="{limit}"}} {count}')
            lines.append(f'retrieval_http_request_seconds_sum{{route="{route}"}} {durations.total}')
            lines.append(f'retrieval_http_request_seconds_count{{route="{route}"}} {sum(durations.counts)}')
        return "".join(f"{line}\n" for line in lines)
