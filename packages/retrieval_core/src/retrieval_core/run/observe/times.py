"""Which stages the specification's times are made of."""

STAGES = {
    "embedding_time": ("embed",),
    "retrieval_time": ("dense", "lexical", "hybrid", "retrieve", "fetch"),
    "reranking_time": ("rerank",),
    "synthesis_time": ("answer",),
}
"""The stages whose calls each of the times is the mean of."""
