"""A backend that keeps failing is skipped for a while, so that queries don't wait for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from retrieval_core.errors import RetrievalError, ServiceConnectionError
from retrieval_core.testing.clock import FakeClock
from support.pipelines import TroubledStore, a_pipeline, filled

FAILURES, PAUSES = 5, (2.0, 4.0, 8.0, 16.0, 30.0, 30.0)


def test_a_backend_that_fails_five_times_is_skipped_and_tried_after_longer_and_longer_pauses() -> None:
    """As docs/resilience.md says, without a setting; after each pause one call tries."""
    store, clock = TroubledStore(), FakeClock()
    filled(store)
    store.failures["lexical"] = ServiceConnectionError("the store is away")
    settings: dict[str, Any] = {"cache__kind": "none", "retry__max_retries": 0, "search__mode": "lexical"}
    tried: list[int] = []
    with a_pipeline(store, clock=clock, **settings) as pipeline:
        for wait in [0.0] * (FAILURES + 1) + [wait for pause in PAUSES for wait in (pause - 1, 1.0)]:
            clock.advance(wait)
            before = store.calls["lexical"]
            with suppress(RetrievalError):
                pipeline.retrieve("history command")
            tried.append(store.calls["lexical"] - before)
    assert tried == [1] * FAILURES + [0] + [0, 1] * len(PAUSES)
