"""Requests that every store refuses."""

from __future__ import annotations

import pytest

from retrieval_core.errors import UnsupportedFilterError
from retrieval_core.ports import SearchRequest
from retrieval_core.ports.stores import check_search
from retrieval_core.types.filters import And, Eq


def test_operators_that_nothing_defines_are_refused() -> None:
    class Near(Eq):
        operator = "$near"

    with pytest.raises(UnsupportedFilterError, match=r"\$near"):
        check_search(SearchRequest(1, text="x", filter=And((Near("a", 1),))))
