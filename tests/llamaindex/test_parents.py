"""Sections around nodes, scores of neighbours, and the events of both older postprocessors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.retrieval_core import MMRPostprocessor, NeighborExpansionPostprocessor
from llama_index.retrievers.retrieval_core import node_from_chunk
from retrieval_core import load_config, open_index
from retrieval_core.errors import ConfigurationError
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.llamaindex_library import Library, chunk
from support.llamaindex_models import both, listening

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core import Index

LONG = tuple(chunk("long.md", n, f"part {n}", 12) for n in range(12))


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    with Library(chunks=LONG) as library:
        yield library


def nodes_of(*chunks: Chunk) -> list[NodeWithScore]:
    return [NodeWithScore(node=node_from_chunk(item), score=1.0 - n / 10) for n, item in enumerate(chunks)]


def ids(nodes: Sequence[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in nodes]


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    """An index of two documents in sections."""
    folder = tmp_path_factory.mktemp("sections")
    for name in ("moon", "sun"):
        parts = [f"## Part {part}\n\n" + f"A sentence of part {part} on the {name}. " * 60 for part in range(2)]
        (folder / f"{name}.md").write_text(f"# {name}\n\n" + "\n\n".join(parts))
    settings = load_config(overrides={"chunking.max_tokens": 120, "chunking.min_tokens": 16})
    with open_index(folder / "index.db", embedder=FakeEmbedder(), config=settings) as index:
        index.ingest(folder)
        yield index


def test_the_section_around_nodes_follows_them_once(sections: Index) -> None:
    """Whole, without a score, with the nodes that it was added for; the neighbours come before it."""
    found = sections.sync.run(sections.store.fetch(FetchRequest(ranges=(ChunkRange("moon.md", 0, 99),))))
    chunks = sorted(found.chunks.values(), key=lambda item: item.chunk_index)
    first = chunks[1].parent_id  # the one before it is the title
    inside = [item for item in chunks if item.parent_id == first]
    given = nodes_of(inside[0], chunks[-1], inside[1])
    postprocessor = NeighborExpansionPostprocessor(sections.store, before=0, after=0, include_parents=True)
    result = postprocessor.postprocess_nodes(given)
    assert asyncio.run(postprocessor.apostprocess_nodes(given)) == result
    assert ids(result) == [inside[0].id, inside[1].id, first, chunks[-1].id, chunks[-1].parent_id]
    assert [item.score for item in result] == [1.0, 0.8, None, 0.9, None]
    text = result[2].node.get_content()
    assert all(item.text in text for item in inside)
    assert neighbor_of(result[2]) == [inside[0].id, inside[1].id]
    wider = NeighborExpansionPostprocessor(sections.store, before=1, after=1, include_parents=True)
    assert ids(wider.postprocess_nodes(given[:1])) == [chunks[0].id, inside[0].id, inside[1].id, first]
    postprocessor.close()


def test_a_section_that_was_found_itself_is_not_added(sections: Index) -> None:
    """And none is added without being asked for, or for a node that is not of this store."""
    found = sections.sync.run(sections.store.fetch(FetchRequest(ranges=(ChunkRange("sun.md", 0, 0),))))
    (passage,) = found.chunks.values()
    section = NodeWithScore(node=TextNode(id_=str(passage.parent_id), text="the section"), score=0.1)
    given = [*nodes_of(passage), section]
    postprocessor = NeighborExpansionPostprocessor(sections.store, before=0, after=0, include_parents=True)
    assert postprocessor.postprocess_nodes(given) == given
    assert len(NeighborExpansionPostprocessor(sections.store, before=0, after=0).postprocess_nodes(given[:1])) == 1
    foreign = nodes_of(Chunk("sun.md#0 of another", "sun.md", "x", parent_id=passage.parent_id, total_chunks=9))
    assert postprocessor.postprocess_nodes(foreign) == foreign


def test_filters_hold_for_sections(sections: Index) -> None:
    """A section has no fields of its own: those of its document have to pass."""
    found = sections.sync.run(sections.store.fetch(FetchRequest(ranges=(ChunkRange("sun.md", 0, 0),))))
    given = nodes_of(*found.chunks.values())
    for filters, added in (({"source": {"$glob": "*sun.md"}}, 1), ({"chunk_index": {"$lte": 99}}, 0)):
        postprocessor = NeighborExpansionPostprocessor(
            sections.store, before=0, after=0, include_parents=True, filters=filters
        )
        assert len(postprocessor.postprocess_nodes(given)) == 1 + added


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


def neighbor_of(item: NodeWithScore) -> Any:
    node: Any = item.node
    return node.neighbor_of if hasattr(node, "neighbor_of") else node.metadata["neighbor_of"]
