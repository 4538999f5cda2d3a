"""The model that reranks."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")


from llama_index.postprocessor.retrieval_core import RerankPostprocessor
from support.llamaindex_models import (
    both,
    node,
    texts,
)


def test_the_local_cross_encoder_is_the_default() -> None:
    """It needs the extra, and says so where that is missing; nothing is loaded before the first question."""
    postprocessor = RerankPostprocessor(top_n=1)
    assert "ms-marco-MiniLM" in postprocessor._works_with
    pytest.importorskip("onnxruntime")
    given = [node("Bread is baked."), node("The moon is 384,400 km away.")]
    assert texts(both(postprocessor, given, "how far away is the moon")) == ["The moon is 384,400 km away."]
    postprocessor.close()
    postprocessor.close()
