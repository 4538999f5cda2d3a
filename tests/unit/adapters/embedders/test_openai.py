"""Requests of embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import times

pytest.importorskip("openai", reason="the extra 'openai' is not installed")

from retrieval_core.adapters.embedders.openai import _requests

if TYPE_CHECKING:
    from collections.abc import Sequence


@settings(max_examples=times(200))
@given(
    st.lists(
        st.one_of(
            st.text(max_size=5),
            st.builds(str.__mul__, st.text(min_size=1, max_size=4), st.integers(0, 40_000)),
        ),
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_requests_keep_the_limits_and_lose_nothing(texts: Sequence[str], batch_size: int) -> None:
    """Every request is within the service's limits, in order, and together they hold every text."""
    sent = list(_requests(texts, batch_size, 8192))
    for request in sent:
        assert 1 <= len(request) <= 2048
        assert len({window.row for window in request}) <= batch_size
        assert sum(window.size for window in request) <= 300_000
        assert all(0 < window.size == len(window.text.encode()) <= 8192 for window in request)
    for row, text in enumerate(texts):
        assert "".join(window.text for request in sent for window in request if window.row == row) == (text or " ")
