"""The configured timeouts, by stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrieval_core.config import TimeoutsConfig

STAGES = {
    "embedding_time": ("embed",),
    "retrieval_time": ("dense", "lexical", "hybrid", "retrieve", "fetch"),
    "reranking_time": ("rerank",),
    "synthesis_time": ("answer",),
}
"""Which stages the specification's times are made of: the calls of these."""


def timeouts_of(config: TimeoutsConfig) -> dict[str, tuple[float, str]]:
    """Return for each stage with a timeout its seconds and the setting's key, for :attr:`Guard.timeouts`."""
    return {
        stage: (seconds, f"timeouts.{name}")
        for name in ("embedding", "retrieval", "reranking", "synthesis")
        if (seconds := getattr(config, name)) is not None
        for stage in STAGES[f"{name}_time"]
    }
