"""Bounds of other settings, and of what a caller asks for."""

from __future__ import annotations

from typing import Any

import pytest

from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import ConfigurationError


def test_nothing_is_bounded_unless_asked() -> None:
    """By default only the deadline holds, and the limits are those of the settings themselves."""
    config = RetrievalConfig()
    assert set(config.timeouts.model_dump().values()) == {None}
    assert config.limits.max_results == 1000


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"limits.max_results": 9}, "limits: search.top_k is 10, and limits.max_results allows 9"),
        ({"limits.max_results": 0}, "limits.max_results: "),
        ({"timeouts.embedding": 0}, "timeouts.embedding: "),
        ({"timeouts.retrieval": "soon"}, "timeouts.retrieval: "),
    ],
)
def test_what_exceeds_a_limit_is_told(overrides: dict[str, Any], problem: str) -> None:
    """With both settings, so that either can be changed."""
    with pytest.raises(ConfigurationError) as caught:
        load_config(overrides=overrides)
    (told,) = caught.value.problems
    assert told.startswith(problem)


def test_at_the_limit_is_within_it() -> None:
    """Both together, and in any unit of text that the environment gives them."""
    environment = {
        "RETRIEVAL_LIMITS__MAX_RESULTS": "7",
        "RETRIEVAL_SEARCH__TOP_K": "7",
        "RETRIEVAL_TIMEOUTS__SYNTHESIS": "0.5",
    }
    config = load_config(environment=environment)
    assert (config.search.top_k, config.timeouts.synthesis) == (7, 0.5)
