"""What a query does without is logged once, and again with each query unless it can't change."""

from __future__ import annotations

import logging

import pytest

from retrieval_core.errors import RetrievalError, StoreError, UnsupportedSearchError
from support.pipelines import TroubledStore, a_pipeline, filled


@pytest.mark.parametrize(
    ("error", "times"), [(StoreError("the disk is gone"), 2), (UnsupportedSearchError("no vectors here"), 1)]
)
def test_a_degradation_is_logged(error: RetrievalError, times: int, caplog: pytest.LogCaptureFixture) -> None:
    """A side of the search that fails twice: that a store has none isn't told again."""
    store = TroubledStore()
    filled(store)
    store.failures["dense"] = error
    with caplog.at_level(logging.WARNING, "retrieval_core"), a_pipeline(store, retry__max_retries=0) as pipeline:
        first, second = (pipeline.retrieve("history command").degraded for _ in range(2))
    assert first == second
    logged = [record.getMessage() for record in caplog.records if str(error) in record.getMessage()]
    (told,) = first
    assert logged == [f"{told.stage}: {told.reason}"] * times
