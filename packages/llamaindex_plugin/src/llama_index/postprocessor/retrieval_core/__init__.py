"""Postprocessors for nodes of any LlamaIndex retriever: reranking, filters of relevance, budgets and context packs."""

from llama_index.postprocessor.retrieval_core.budget import TokenBudgetPostprocessor
from llama_index.postprocessor.retrieval_core.context_pack import ContextPackPostprocessor
from llama_index.postprocessor.retrieval_core.mmr import MMRPostprocessor
from llama_index.postprocessor.retrieval_core.neighbors import NeighborExpansionPostprocessor
from llama_index.postprocessor.retrieval_core.pruning import SentencePruningPostprocessor
from llama_index.postprocessor.retrieval_core.relevance import RelevanceFilterPostprocessor
from llama_index.postprocessor.retrieval_core.rerank import LLMRerankPostprocessor, RerankPostprocessor

__all__ = [
    "ContextPackPostprocessor",
    "LLMRerankPostprocessor",
    "MMRPostprocessor",
    "NeighborExpansionPostprocessor",
    "RelevanceFilterPostprocessor",
    "RerankPostprocessor",
    "SentencePruningPostprocessor",
    "TokenBudgetPostprocessor",
]
