"""What the specification's cache takes for the same question."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval_core.compat.pipeline import CacheConfig, MetadataFilter, ResultCache, RetrievalResult
from retrieval_core.errors import FilterError


@pytest.mark.parametrize("empty", [None, {}, MetadataFilter()])
def test_a_filter_that_asks_for_nothing_finds_what_was_kept_without_one(empty: MetadataFilter | None) -> None:
    """A result kept for a bare question is found again with each form of an empty filter."""
    cache, result = ResultCache(CacheConfig()), RetrievalResult("q", [], "", [])
    cache.set("q", result)
    assert cache.get("q", empty) is result
    assert cache.get("q", MetadataFilter(max_price=0)) is None


@pytest.mark.parametrize("filters", [{"a": {1}}, {"a": b"b"}, {"a": {1: 2}}, {1: 2}])
def test_an_invalid_filter_is_refused(filters: Any) -> None:
    """It is the error of a query with this filter."""
    with pytest.raises(FilterError):
        ResultCache(CacheConfig()).get("q", filters)
