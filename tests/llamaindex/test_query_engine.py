"""A stock query engine with our retriever and our postprocessors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from llama_index.postprocessor.retrieval_core import MMRPostprocessor, NeighborExpansionPostprocessor
from llama_index.retrievers.retrieval_core import RetrievalCoreRetriever, RetrievalQueryBundle
from support.llamaindex_library import Library

if TYPE_CHECKING:
    from collections.abc import Iterator

QUESTION = "how far away is the moon"


@pytest.fixture
def engine(library: Library) -> Iterator[RetrieverQueryEngine]:
    retriever = RetrievalCoreRetriever(pipeline=library.pipeline, top_k=3)
    mmr = MMRPostprocessor(library.embedder, top_n=1)
    neighbors = NeighborExpansionPostprocessor(retriever.pipeline.store, before=1, after=0)
    yield RetrieverQueryEngine.from_args(retriever, llm=MockLLM(), node_postprocessors=[mmr, neighbors])
    neighbors.close()
    mmr.close()


def sources(response: Any) -> list[str]:
    return [item.node.node_id for item in response.source_nodes]


def test_an_engine_answers_with_the_right_sources(engine: RetrieverQueryEngine) -> None:
    """Sync, async, and sync inside a running loop."""
    expected = ["moon.md#0", "moon.md#1"]
    assert sources(engine.query(QUESTION)) == expected

    async def inside() -> None:
        assert sources(await engine.aquery(QUESTION)) == expected
        assert sources(engine.query(QUESTION)) == expected

    asyncio.run(inside())


def test_the_prompt_holds_passages_with_their_citations_and_nothing_else(engine: RetrieverQueryEngine) -> None:
    """The mock model answers with its prompt."""
    prompt = str(engine.query(QUESTION))
    assert "citation: Doc: moon.md | Section: moon\n\nThe moon is 384,400 km away." in prompt
    for name in ("kind", "year", "neighbor_of", "score", "source"):
        assert f"{name}:" not in prompt


def test_settings_of_a_query_pass_through_the_engine(engine: RetrieverQueryEngine) -> None:
    """As a bundle."""
    assert sources(engine.query(RetrievalQueryBundle(QUESTION, filters={"kind": "star"}))) == ["sun.md#0", "sun.md#1"]
