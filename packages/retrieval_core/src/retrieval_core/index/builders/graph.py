"""The knowledge graph as it is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrieval_core.adapters.graph import GraphQueryTranslator
    from retrieval_core.config import GraphConfig
    from retrieval_core.ports import Store


def build_graph_translator(config: GraphConfig, store: Store) -> GraphQueryTranslator | None:
    """Return the translator of the configured graph, whose file is not yet read; ``None`` without a graph."""
    if config.file is None:
        return None
    from retrieval_core.adapters.graph import GraphQueryTranslator  # noqa: PLC0415 - only if it is configured

    return GraphQueryTranslator(config.file, store)
