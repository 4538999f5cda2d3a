"""Diversity in LlamaIndex and in the core."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.retrieval_core import MMRPostprocessor
from retrieval_core.pipeline.stages.fuse import Ranked
from retrieval_core.pipeline.stages.select import maximal_marginal_relevance
from retrieval_core.types import Scores
from support.examples import times


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.tuples(*[st.floats(-1, 1, width=32)] * 3)), min_size=1, max_size=8),
    st.integers(1, 9),
    st.floats(0, 1),
)
@settings(max_examples=times(100))
def test_the_choice_is_the_cores(rows: list[tuple[float, tuple[float, ...]]], top_n: int, lambda_mult: float) -> None:
    """The same arithmetic, also where nodes share an id."""
    nodes = [
        NodeWithScore(node=TextNode(id_="same", text=str(place), embedding=list(vector)), score=score)
        for place, (score, vector) in enumerate(rows)
    ]
    chosen = MMRPostprocessor(top_n=top_n, lambda_mult=lambda_mult).postprocess_nodes(nodes)
    vectors: dict[str, Any] = {}
    for place, (_, vector) in enumerate(rows):
        wide = np.asarray(vector, np.float32).astype(np.float64)  # the length of tiny ones is not exact in float32
        vectors[str(place)] = (wide / (float(np.linalg.norm(wide)) or 1)).astype(np.float32)
    ranked = [Ranked(str(place), Scores(final=score)) for place, (score, _) in enumerate(rows)]
    expected = maximal_marginal_relevance(ranked, vectors, top_k=top_n, lambda_mult=lambda_mult)
    assert len(chosen) == len(expected) == min(top_n, len(rows))
    assert [item.score for item in chosen] == pytest.approx([item.score for item in expected], abs=1e-5)
