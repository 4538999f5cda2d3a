"""From a question to its result: the order of the stages, and what is done when one of them fails."""

from retrieval_core.pipeline.pipeline import RetrievalPipeline
from retrieval_core.pipeline.planning import MAX_TOP_K

__all__ = ["MAX_TOP_K", "RetrievalPipeline"]
