"""Which calls the configured timeouts are for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.run.observe.times import STAGES

if TYPE_CHECKING:
    from retrieval_core.config import TimeoutsConfig


def timeouts_of(config: TimeoutsConfig) -> dict[str, tuple[float, str]]:
    """Return for each stage with a timeout its seconds and the setting's key, as a ``Guard`` takes them."""
    return {
        stage: (seconds, f"timeouts.{name}")
        for name, times in (
            ("embedding", "embedding_time"),
            ("retrieval", "retrieval_time"),
            ("reranking", "reranking_time"),
            ("synthesis", "synthesis_time"),
        )
        if (seconds := getattr(config, name)) is not None
        for stage in STAGES[times]
    }
