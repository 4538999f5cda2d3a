"""Settings of answering a question with the result of one that asks the same in other words."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from retrieval_core.config.backends import Settings


class SemanticCacheConfig(Settings):
    """Answering a question with the result of one that asks the same in other words."""

    enabled: bool = False
    """Whether that is done; it needs an embedder, and ``cache.enabled``."""
    threshold: float = Field(default=0.98, ge=0, le=1)
    """The least cosine of two questions that may be the same; what their words say has to agree all the same."""
    max_size: int = Field(default=1000, ge=1)
    """The most questions in memory; those longest unused go first."""
    scope: Literal["global", "session"] = "global"
    """``session`` compares a question only with those of the same ``session_id``."""
