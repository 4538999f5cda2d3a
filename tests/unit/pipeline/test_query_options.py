"""Checked options of a query."""

from __future__ import annotations

from retrieval_core.pipeline.options import QueryOptions, checked_values


def test_checked_values_never_change() -> None:
    """A list becomes a tuple, and names of modes become one name."""
    given: QueryOptions = {"mode": "vector", "history": [{"role": "user", "content": "Hi"}], "score_threshold": None}
    values = checked_values(given)
    assert values.get("mode") == "dense"
    assert isinstance(values.get("history"), tuple)
    assert "score_threshold" not in values
