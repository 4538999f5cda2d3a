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

from llama_index.retrievers.retrieval_core import (
    PassageNode,
    chunk_from_node,
    hit_from_node,
    node_from_chunk,
    node_from_hit,
)
from retrieval_core.errors import InvalidParameterError
from retrieval_core.testing.filter_strategies import metadata, texts
from retrieval_core.types import Chunk, Hit, Scores, Span, format_citation
from support.examples import times
from support.llamaindex_library import CHUNKS, hits, passage

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
    """Stores of LlamaIndex keep nodes as JSON; what they read is a node of its own, without what the question added."""
    item = node_from_hit(hit, 1)
    written = json.loads(json.dumps(item.node.to_dict()))
    assert hit_from_node(NodeWithScore(node=PassageNode.from_dict(written), score=item.score)) == hit
    again = TextNode.from_dict(written)
    assert again.hash == item.node.hash
    assert hit_from_node(NodeWithScore(node=again, score=item.score)) == Hit(
        hit.chunk, hit.score, Scores(final=hit.score), source_index=hit.source_index
    )


@given(hits())
@settings(max_examples=times(150))
def test_the_users_metadata_stay_as_they_are_and_a_model_sees_the_citation_alone(hit: Hit) -> None:
    """Whatever names they have; what is embedded is the text."""
    node = node_from_hit(hit, 1).node
    own = json.loads(json.dumps(hit.chunk.metadata))
    assert {name: node.metadata[name] for name in own} == own
    shown = set(node.metadata) - set(node.excluded_llm_metadata_keys)
    assert [node.metadata[key] for key in shown] == [format_citation(hit.chunk)]
    assert node.get_content(MetadataMode.EMBED) == hit.chunk.text


@given(hits(), hits())
@settings(max_examples=times(150))
def test_what_a_question_adds_changes_neither_hash_nor_metadata(one: Hit, other: Hit) -> None:
    """Fusion recognises a passage by its node's hash; and the metadata added are flat."""
    same = replace(other, chunk=one.chunk, source_index=one.source_index)
    first, second = node_from_hit(one, 1, ["embed: gone"]).node, node_from_hit(same, 7).node
    assert first.hash == second.hash
    assert first.metadata == second.metadata
    added = [value for name, value in first.metadata.items() if name not in one.chunk.metadata]
    assert all(value is None or isinstance(value, (str, int)) for value in added)


@given(st.lists(st.text("a >\\\n", max_size=5), max_size=4))
@settings(max_examples=times(300))
def test_headings_survive_as_one_text(path: list[str]) -> None:
    """Also those that hold what separates them."""
    assert chunk_from_node(node_from_chunk(Chunk("a", "d", "t", section_path=tuple(path)))).section_path == tuple(path)


@given(texts(), texts(), metadata(), st.none() | st.floats(-10, 10))
@settings(max_examples=times(150))
def test_a_node_of_another_retriever_becomes_a_chunk(name: str, text: str, own: dict[str, Any], score: float) -> None:
    """Everything that is known of it is kept."""
    node = TextNode(id_=name, text=text, metadata=own)
    hit = hit_from_node(NodeWithScore(node=node, score=score))
    title = own.get("title")
    title = title if isinstance(title, str) and title.strip() else None
    assert hit == Hit(Chunk(name, name, text, title=title, metadata=own), score or 0.0, Scores(final=score))


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
    metadata = {"file_path": "a/b.md", "url": "https://example.org/b"}
    shown, hidden = (
        chunk_from_node(TextNode(text="t", metadata=metadata, excluded_llm_metadata_keys=keys))
        for keys in ([], ["file_path"])
    )
    assert (shown.source, hidden.source) == ("a/b.md", "https://example.org/b")  # citations may name it


def test_a_node_says_what_it_is_and_where_it_comes_from() -> None:
    """Names are those of the JSON that the command line prints."""
    item = node_from_hit(HIT, 1)
    node = item.node
    assert isinstance(node, PassageNode)
    assert (item.score, node.node_id, node.text, node.ref_doc_id) == (1.5, "moon.md#1", CHUNKS[1].text, "moon.md")
    assert (node.start_char_idx, node.end_char_idx) == (100, 100 + len(CHUNKS[1].text))
    assert node.metadata == {
        "kind": "moon",
        "year": 1970,
        "document_id": "moon.md",
        "title": "Moon",
        "source": "moon.md",
        "section_path": "moon",
        "span_start": 100,
        "span_end": 100 + len(CHUNKS[1].text),
        "content_hash": CHUNKS[1].content_hash,
        "chunk_index": 1,
        "total_chunks": 4,
        "parent_id": "moon.md/section",
        "timestamp": datetime(2026, 1, 2, tzinfo=UTC).isoformat(),
        "citation": "Doc: moon.md | Section: moon",
    }
    assert node.rank == 1
    assert node.scores == {
        "dense": 0.7,
        "dense_rank": 1,
        "lexical": 3.25,
        "lexical_rank": 2,
        "fused": 1.5,
        "final": 1.5,
    }
    assert (
        node.get_content(MetadataMode.LLM) == "citation: Doc: moon.md | Section: moon\n\nThe moon is 384,400 km away."
    )


def test_passages_of_several_indexes_have_ids_of_their_own() -> None:
    """Two indexes may have the same ids, and LlamaIndex drops what has the id of another node."""
    one, other = (node_from_hit(replace(HIT, source_index=name), 1) for name in ("docs", "blog"))
    assert (one.node.node_id, one.node.ref_doc_id) == ("docs:moon.md#1", "docs:moon.md")
    assert one.node.node_id != other.node.node_id
    assert hit_from_node(one) == replace(HIT, source_index="docs")


@pytest.mark.parametrize(
    ("scores", "relevance"),
    [
        (Scores(dense=0.7, final=12.0), 0.7),
        (Scores(dense=0.7, rerank=0.2, final=0.2), 0.2),
        (Scores(dense=0.7, rerank=0.2, relevance=0.9, final=0.2), 0.9),
        (Scores(lexical=12.5, final=12.5), 0.0),
    ],
)
def test_a_score_may_be_a_relevance(scores: Scores, relevance: float) -> None:
    """For what has a cutoff."""
    assert node_from_hit(replace(HIT, scores=scores), 1, score="relevance").score == relevance


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
    """The provenance of that name has another one."""
    chunk = Chunk("a", "d", "t", title="Ours", metadata={"title": "Yours", "citation": "Mine", "first_page": 3})
    node = node_from_chunk(chunk, llm_metadata=["title", "citation"])
    assert (node.metadata["title"], node.metadata["retrieval_core_title"]) == ("Yours", "Ours")
    assert node.metadata["retrieval_core_first_page"] is None
    assert node.get_content(MetadataMode.LLM) == "retrieval_core_title: Ours\nretrieval_core_citation: Doc: d\n\nt" or (
        node.get_content(MetadataMode.LLM) == "retrieval_core_citation: Doc: d\nretrieval_core_title: Ours\n\nt"
    )
    assert chunk_from_node(node) == chunk
    assert node_from_chunk(chunk, llm_metadata=[]).get_content(MetadataMode.LLM) == "t"


def test_metadata_of_a_node_may_be_changed() -> None:
    """LlamaIndex does so; the chunk stays as it is."""
    source = Chunk("a", "d", "t", metadata={"list": [1], "table": {"x": [2]}})
    node = node_from_chunk(source)
    node.metadata["list"].append(3)
    node.metadata["table"]["x"].append(4)
    assert source.metadata == {"list": (1,), "table": {"x": (2,)}}


@pytest.mark.parametrize(
    "change",
    [{"span_start": "ab"}, {"first_page": 1}, {"timestamp": "soon"}, {"last_row": 2.5}, {"own": datetime.now}],
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
    passage(item).scores = {"charm": 1}
    with pytest.raises(InvalidParameterError, match="moon"):
        hit_from_node(item)
