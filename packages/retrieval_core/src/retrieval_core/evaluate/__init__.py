"""Evaluation of retrieval on collections with relevance judgements."""

from retrieval_core.evaluate.run import (
    Collection,
    EvaluationReport,
    Measures,
    ScoredDocument,
    evaluate,
    load_collection,
    measure,
    rank_documents,
)

__all__ = [
    "Collection", "EvaluationReport", "Measures", "ScoredDocument", "evaluate", "load_collection", "measure",
    "rank_documents",
]  # fmt: skip
