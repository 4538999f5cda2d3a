"""What the specification's cache takes for the same question."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval_core.compat.pipeline import CacheConfig, MetadataFilter, ResultCache, RetrievalResult
from retrieval_core.errors import InvalidParameterError


@pytest.mark.parametrize("empty", [None, {}, MetadataFilter()])
def test_a_filter_that_asks_for_nothing_finds_what_was_kept_without_one(empty: MetadataFilter | None) -> None:
    """A result kept for a bare question is found again with each form of an empty filter."""
    cache, result = ResultCache(CacheConfig()), RetrievalResult("q", [], "", [])
    cache.set("q", result)
    assert cache.get("q", empty) is result
    assert cache.get("q", MetadataFilter(max_price=0)) is None


@pytest.mark.parametrize("filters", [{"a": {1}}, {"a": b"b"}, {"a": {1: 2}}, {1: 2}])
def test_what_is_no_json_is_refused(filters: Any) -> None:
    """A filter that cannot be written in one way only is the key of nothing."""
    with pytest.raises(InvalidParameterError, match="must be"):
        ResultCache(CacheConfig()).get("q", filters)
