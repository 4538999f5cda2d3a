"""How often each caller may ask."""

from __future__ import annotations

from collections import OrderedDict
from math import ceil
from typing import TYPE_CHECKING

from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from retrieval_core.run.clock import Clock

_ROUNDING = 1e-9
MOST_CALLERS = 10_000
"""Callers that are remembered; who asked longest ago is forgotten first."""


class RateLimit:
    """Lets each caller ask so often a minute, and as often at once.

    Args:
        per_minute: How often; 0 for no bound.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, caller: str) -> None:
        """Count a request.

        Raises:
            RequestError: The caller has asked too often; the header ``Retry-After`` says when to come again.
        """
        if not self._per_minute:
            return
        now = self._clock.now()
        left, then = self._left.pop(caller, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - then) * self._per_minute / 60)
        if left < 1 - _ROUNDING:
            self._left[caller] = left, now
            wait = ceil((1 - left) * 60 / self._per_minute)
            msg = f"too many requests: {self._per_minute} a minute are let in; ask again in {wait} seconds"
            raise RequestError(429, msg, headers={"retry-after": str(wait)})
        self._left[caller] = left - 1, now
        while len(self._left) > MOST_CALLERS:
            self._left.popitem(last=False)
