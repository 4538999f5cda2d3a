"""Hits become nodes and come back; what is not meant for the prompt stays out of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.schema import (
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)

from llama_index.retrievers.retrieval_core import chunk_from_node, hit_from_node, node_from_chunk, node_from_hit
from llama_index.retrievers.retrieval_core.convert import PROVENANCE
from retrieval_core.errors import InvalidParameterError
from retrieval_core.index.serialization import hit_to_json
from retrieval_core.testing.filter_strategies import metadata, texts
from retrieval_core.types import Chunk, Hit, Origin, Scores, Span
from support.examples import times
from support.llamaindex_library import CHUNKS, hits

if TYPE_CHECKING:
    from collections.abc import Sequence

HIT = Hit(CHUNKS[1], 1.5, Scores(dense=0.7, dense_rank=1, lexical=3.25, lexical_rank=2, fused=1.5, final=1.5))


@given(hits(), st.integers(1, 1000), st.lists(texts(), max_size=2))
@settings(max_examples=times(300))
def test_a_hit_survives_the_way_to_a_node_and_back(hit: Hit, rank: int, degraded: Sequence[str]) -> None:
    """Whatever names the user's metadata have."""
    item = node_from_hit(hit, rank, degraded)
    assert hit_from_node(item) == hit
    assert chunk_from_node(item.node) == hit.chunk
    assert item.score == hit.score


@given(hits())
@settings(max_examples=times(150))
def test_a_node_survives_json(hit: Hit) -> None:
    """Stores of LlamaIndex keep nodes as JSON."""
    item = node_from_hit(hit, 1)
    again = TextNode.from_dict(json.loads(json.dumps(item.node.to_dict())))
    assert hit_from_node(NodeWithScore(node=again, score=item.score)) == hit


@given(hits())
@settings(max_examples=times(150))
def test_the_users_metadata_stay_as_they_are_and_are_all_that_a_prompt_sees(hit: Hit) -> None:
    """The provenance is in the metadata, and in neither text."""
    node = node_from_hit(hit, 1).node
    own = json.loads(json.dumps(hit.chunk.metadata))
    own.pop("retrieval_core_shadowed", None)
    assert {name: node.metadata[name] for name in own} == own
    for excluded in (node.excluded_llm_metadata_keys, node.excluded_embed_metadata_keys):
        assert set(node.metadata) - set(excluded) == set(own)


@given(texts(), texts(), metadata(), st.none() | st.floats(-10, 10))
@settings(max_examples=times(150))
def test_a_node_of_another_retriever_becomes_a_chunk(name: str, text: str, own: dict[str, Any], score: float) -> None:
    """Everything that is known of it is kept."""
    node = TextNode(id_=name, text=text, metadata=own)
    hit = hit_from_node(NodeWithScore(node=node, score=score))
    assert hit == Hit(Chunk(name, name, text, metadata=own), score or 0.0, Scores(final=score))


def test_a_node_of_another_retriever_keeps_its_source_parent_and_place() -> None:
    """They are in its relationships and character indexes."""
    node = TextNode(
        id_="n",
        text="text",
        start_char_idx=3,
        end_char_idx=7,
        relationships={
            NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc"),
            NodeRelationship.PARENT: RelatedNodeInfo(node_id="part"),
        },
    )
    assert chunk_from_node(node) == Chunk("n", "doc", "text", span=Span(3, 7), parent_id="part")
    assert chunk_from_node(IndexNode(id_="i", text="t", index_id="x")).text == "t"


def test_a_node_says_what_it_is_and_where_it_comes_from() -> None:
    """Names are those of the JSON that the command line prints."""
    item = node_from_hit(HIT, 1)
    node = item.node
    assert isinstance(node, TextNode)
    assert (item.score, node.node_id, node.text, node.ref_doc_id) == (1.5, "moon.md#1", CHUNKS[1].text, "moon.md")
    assert (node.start_char_idx, node.end_char_idx) == (100, 100 + len(CHUNKS[1].text))
    assert node.metadata == {
        "kind": "moon",
        "year": 1970,
        "document_id": "moon.md",
        "title": "Moon",
        "source": "moon.md",
        "section_path": ["moon"],
        "span": [100, 100 + len(CHUNKS[1].text)],
        "chunk_index": 1,
        "total_chunks": 4,
        "parent_id": "moon.md/section",
        "timestamp": datetime(2026, 1, 2, tzinfo=UTC).isoformat(),
        "citation": "Doc: moon.md | Section: moon",
        "rank": 1,
        "scores": {"dense": 0.7, "dense_rank": 1, "lexical": 3.25, "lexical_rank": 2, "fused": 1.5, "final": 1.5},
    }
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert node.get_content(mode) == "kind: moon\nyear: 1970\n\nThe moon is 384,400 km away."


def test_every_name_of_the_json_form_is_known_as_provenance() -> None:
    """A field that the core adds must not be taken for the user's."""
    full = replace(HIT, found_by=(Origin("keywords", "q"),), excerpts=(Span(0, 3),), source_index="docs")
    names = hit_to_json(full, 1).keys() - {"id", "text", "score", "metadata", "content_hash"}
    assert names | {"degraded", "neighbor_of"} == PROVENANCE


@pytest.mark.parametrize(
    ("given", "previous", "following"),
    [
        (CHUNKS[0], None, "moon.md#1"),
        (CHUNKS[1], "moon.md#0", "moon.md#2"),
        (CHUNKS[3], "moon.md#2", None),
        (Chunk("by hand", "doc", "t", chunk_index=1, total_chunks=3), None, None),
    ],
)
def test_relationships_name_the_neighbours_where_their_ids_are_known(
    given: Chunk, previous: str | None, following: str | None
) -> None:
    """Ids of chunks that were added by hand follow no rule."""
    node = node_from_chunk(given)
    assert (node.prev_node and node.prev_node.node_id) == previous
    assert (node.next_node and node.next_node.node_id) == following
    assert (node.parent_node and node.parent_node.node_id) == given.parent_id
    assert node.source_node == RelatedNodeInfo(node_id=given.document_id, node_type=ObjectType.DOCUMENT)


def test_a_users_field_with_a_name_of_provenance_stays() -> None:
    """It is the user's, so prompts see it; the provenance of that name is elsewhere."""
    node = node_from_chunk(Chunk("a", "d", "t", title="Ours", metadata={"title": "Yours", "neighbor_of": 1}))
    assert node.metadata["title"] == "Yours"
    assert node.metadata["retrieval_core_shadowed"] == {"title": "Ours", "neighbor_of": None}
    assert "title" not in node.excluded_llm_metadata_keys


def test_metadata_of_a_node_may_be_changed() -> None:
    """LlamaIndex does so; the chunk stays as it is."""
    source = Chunk("a", "d", "t", metadata={"list": [1], "table": {"x": [2]}})
    node = node_from_chunk(source)
    node.metadata["list"].append(3)
    node.metadata["table"]["x"].append(4)
    assert source.metadata == {"list": (1,), "table": {"x": (2,)}}


@pytest.mark.parametrize(
    "change",
    [{"span": "ab c"}, {"page_span": [1, 2, 3]}, {"timestamp": "soon"}, {"row_range": [1]}, {"own": datetime.now}],
)
def test_provenance_that_was_changed_into_nonsense_is_an_error_of_ours(change: dict[str, Any]) -> None:
    """The message names the node."""
    node = node_from_chunk(CHUNKS[0])
    node.metadata.update(change)
    with pytest.raises(InvalidParameterError, match="moon"):
        chunk_from_node(node)


def test_scores_that_were_changed_into_nonsense_are_an_error_of_ours() -> None:
    """The message names the node."""
    item = node_from_hit(HIT, 1)
    item.node.metadata["scores"] = {"charm": 1}
    with pytest.raises(InvalidParameterError, match="moon"):
        hit_from_node(item)
