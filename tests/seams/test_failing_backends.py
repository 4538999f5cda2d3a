"""A backend that keeps failing is skipped for a while, so that queries don't wait for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from retrieval_core.errors import RetrievalError, ServiceConnectionError
from retrieval_core.testing.clock import FakeClock
from support.pipelines import TroubledStore, a_pipeline, filled

FAILURES, PAUSE = 5, 30.0


def test_a_backend_that_fails_five_times_is_skipped_for_half_a_minute() -> None:
    """As docs/resilience.md says, without a setting; then one call tries, and if that fails it is skipped again."""
    store, clock = TroubledStore(), FakeClock()
    filled(store)
    store.failures["lexical"] = ServiceConnectionError("the store is away")
    settings: dict[str, Any] = {"cache__kind": "none", "retry__max_retries": 0, "search__mode": "lexical"}
    tried: list[int] = []
    with a_pipeline(store, clock=clock, **settings) as pipeline:
        for wait in (0.0,) * (FAILURES + 1) + (PAUSE - 1, 1.0, 1.0, PAUSE - 2, 1.0):
            clock.advance(wait)
            before = store.calls["lexical"]
            with suppress(RetrievalError):
                pipeline.retrieve("history command")
            tried.append(store.calls["lexical"] - before)
    assert tried == [1] * FAILURES + [0, 0, 1, 0, 0, 1]
