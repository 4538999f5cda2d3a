"""The model that the filter and the pruner use."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")


from llama_index.postprocessor.retrieval_core import RelevanceFilterPostprocessor, SentencePruningPostprocessor
from support.llamaindex_models import both, node, texts


def test_the_local_cross_encoder_is_the_default_of_both() -> None:
    """It needs the extra."""
    relevance, pruning = RelevanceFilterPostprocessor(), SentencePruningPostprocessor()
    assert "ms-marco-MiniLM" in relevance._works_with
    assert "ms-marco-MiniLM" in pruning._works_with
    pytest.importorskip("onnxruntime")
    given = [node("Bread is baked from flour. The moon is 384,400 km away from the earth."), node("Flour is ground.")]
    question = "how far away is the moon"
    assert both(relevance, given, question) == given[:1]
    assert texts(both(pruning, given, question))[0] == "The moon is 384,400 km away from the earth."
    for postprocessor in (relevance, pruning):
        postprocessor.close()
        postprocessor.close()
