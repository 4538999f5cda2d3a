"""Evaluation of retrieval on collections with relevance judgements."""

from retrieval_core.evaluate.run import (
    Collection,
    Compared,
    EvaluationReport,
    Measures,
    ScoredDocument,
    SettingsComparison,
    compare_settings,
    evaluate,
    load_collection,
    measure,
    rank_documents,
    write_run,
)

__all__ = [
    "Collection", "Compared", "EvaluationReport", "Measures", "ScoredDocument", "SettingsComparison",
    "compare_settings", "evaluate", "load_collection", "measure", "rank_documents", "write_run",
]  # fmt: skip
