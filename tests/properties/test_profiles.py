"""Which examples the properties are tried with."""

from __future__ import annotations

import pytest
from hypothesis import settings


@pytest.mark.parametrize("name", ["here", "quick"])
def test_ordinary_runs_draw_the_same_examples_each_time(name: str) -> None:
    """What passed once passes again: a run that fails says something about what was changed."""
    assert settings.get_profile(name).derandomize


def test_the_nightly_run_draws_at_random() -> None:
    """It is the one that finds what nobody thought of."""
    assert not settings.get_profile("random").derandomize
