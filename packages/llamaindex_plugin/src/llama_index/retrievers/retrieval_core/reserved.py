"""The one metadata key that belongs to this package."""

from __future__ import annotations

RESERVED = "_llama_index_node"
"""Below it a chunk's metadata hold what a node of LlamaIndex has and a chunk has not; nodes do not show it.

See :mod:`llama_index.vector_stores.retrieval_core.nodes`.
"""
