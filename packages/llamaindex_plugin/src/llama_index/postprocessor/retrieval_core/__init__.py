"""Postprocessors for nodes of any LlamaIndex retriever: maximal marginal relevance and neighbour expansion."""

from llama_index.postprocessor.retrieval_core.mmr import MMRPostprocessor
from llama_index.postprocessor.retrieval_core.neighbors import NeighborExpansionPostprocessor

__all__ = ["MMRPostprocessor", "NeighborExpansionPostprocessor"]
