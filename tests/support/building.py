"""Parts and pipelines made from their settings, and JSON of events, as commands and servers do it."""

from __future__ import annotations

from retrieval_core.adapters.registry import (
    build_cache,
    build_embedder,
    build_llm,
    build_relevance_filter,
    build_rerankers,
    build_rewriter,
    build_store,
)
from retrieval_core.adapters.stores.foreign import MAPPED
from retrieval_core.index.open import build_pipeline
from retrieval_core.index.serialization import event_to_json

__all__ = [
    "MAPPED", "build_cache", "build_embedder", "build_llm", "build_pipeline", "build_relevance_filter",
    "build_rerankers", "build_rewriter", "build_store", "event_to_json",
]  # fmt: skip
