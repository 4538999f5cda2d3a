"""From a question to its result: the order of the stages, and what is done when one of them fails."""

from retrieval_core.pipeline.pipeline import MAX_TOP_K, RetrievalPipeline

__all__ = ["MAX_TOP_K", "RetrievalPipeline"]
