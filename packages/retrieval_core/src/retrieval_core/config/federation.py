"""Settings of several indexes that are searched as one."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from retrieval_core.config.backends import Settings


class FederationConfig(Settings):
    """Searching several indexes as one."""

    max_results_per_query: int = Field(default=100, ge=1, le=1000)
    """The most passages that one query takes from each index."""
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=dict)
    """What the scores of an index's passages are multiplied by, by its name; 1 where it is not set, and an index with 0
    is not asked."""
