"""Scores of neighbours, and the events of both older postprocessors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import NodeWithScore

from llama_index.postprocessor.retrieval_core import MMRPostprocessor, NeighborExpansionPostprocessor
from llama_index.retrievers.retrieval_core import node_from_chunk
from retrieval_core.errors import ConfigurationError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.llamaindex_library import Library, chunk
from support.llamaindex_models import both, listening

if TYPE_CHECKING:
    from collections.abc import Iterator


LONG = tuple(chunk("long.md", n, f"part {n}", 12) for n in range(12))


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    with Library(chunks=LONG) as library:
        yield library


def nodes_of(*chunks: Chunk) -> list[NodeWithScore]:
    return [NodeWithScore(node=node_from_chunk(item), score=1.0 - n / 10) for n, item in enumerate(chunks)]


def test_scores_of_given_nodes_are_kept_and_what_was_added_has_none(library: Library) -> None:
    """A score of 0 too; as LlamaIndex's tests of PrevNextNodePostprocessor have it."""
    given = [NodeWithScore(node=node_from_chunk(LONG[n]), score=score) for n, score in ((4, 0.0), (3, 0.8))]
    result = both(NeighborExpansionPostprocessor(library.store), given, None)
    assert [(item.node.node_id[8:], item.score) for item in result] == [
        ("2", None),
        ("3", 0.8),
        ("4", 0.0),
        ("5", None),
    ]


def test_start_end_and_errors_are_events(library: Library) -> None:
    """Of this one and of MMR."""
    given = nodes_of(LONG[3])
    for postprocessor in (NeighborExpansionPostprocessor(library.store), MMRPostprocessor(FakeEmbedder())):
        with listening() as events:
            result = postprocessor.postprocess_nodes(given, query_str="q")
        start, end = (event for event in events if isinstance(event, (ReRankStartEvent, ReRankEndEvent)))
        assert (start.nodes, end.nodes) == (given, result)
    with listening() as events, pytest.raises(ConfigurationError, match="no embedder"):
        MMRPostprocessor().postprocess_nodes(given)
    kinds = [type(event) for event in events if isinstance(event, (ReRankStartEvent, ReRankEndEvent, ExceptionEvent))]
    assert kinds == [ReRankStartEvent, ExceptionEvent]
