"""From a question to its result: the order of the stages, and what is done when one of them fails."""

from retrieval_core.pipeline.options import MAX_TOP_K
from retrieval_core.pipeline.pipeline import RetrievalPipeline
from retrieval_core.pipeline.stages.state import SearchState, Stage
from retrieval_core.run.runner import Run

__all__ = ["MAX_TOP_K", "RetrievalPipeline", "Run", "SearchState", "Stage"]
