"""Nodes of other makes become chunks that know their place, their file and their page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.schema import Document, NodeRelationship, RelatedNodeInfo, TextNode

from llama_index.retrievers.retrieval_core import chunk_from_node, chunks_from_nodes, node_from_chunk
from retrieval_core.types import PageSpan, freeze
from support.examples import times
from support.llamaindex_library import CHUNKS

if TYPE_CHECKING:
    from collections.abc import Sequence


def node(name: str, document: str = "d", start: int | None = None, **links: str) -> TextNode:
    relationships = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=document)}
    for kind, other in links.items():
        relationships[NodeRelationship[kind.upper()]] = RelatedNodeInfo(node_id=other)
    return TextNode(id_=name, text=name, start_char_idx=start, relationships=relationships)


def order(nodes: Sequence[TextNode]) -> dict[str, tuple[int, int]]:
    chunks = chunks_from_nodes(nodes)
    assert [chunk.id for chunk in chunks] == [item.node_id for item in nodes]
    return {chunk.id: (chunk.chunk_index, chunk.total_chunks) for chunk in chunks}


@given(st.permutations(range(6)), st.sampled_from(["next", "previous", "both", "start"]))
@settings(max_examples=times(100))
def test_a_document_has_the_order_of_its_nodes(drawn: list[int], told_by: str) -> None:
    """By the relationships in either direction, or by where the texts begin, in whatever order the nodes come."""
    nodes = [
        node(
            str(number),
            start=number * 10 if told_by == "start" else None,
            **({"next": str(number + 1)} if told_by in {"next", "both"} else {}),
            **({"previous": str(number - 1)} if told_by in {"previous", "both"} else {}),
        )
        for number in drawn
    ]
    assert order(nodes) == {str(number): (number, 6) for number in range(6)}


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef"), st.none() | st.integers(0, 9)), max_size=8)
)
@settings(max_examples=times(200))
def test_each_node_has_a_place_of_its_own(drawn: list[tuple[str, str, int | None]]) -> None:
    """Also where the relationships contradict each other, go in circles, or lead out of the document."""
    nodes = [
        node(str(number), start=start, next=after, previous=before)
        for number, (after, before, start) in enumerate(drawn)
    ]
    for item, (after, before, _) in zip(nodes, drawn, strict=True):
        item.relationships[NodeRelationship.NEXT] = RelatedNodeInfo(node_id=str("abcdef".index(after)))
        item.relationships[NodeRelationship.PREVIOUS] = RelatedNodeInfo(node_id=str("abcdef".index(before)))
    places = order(nodes).values()
    assert sorted(index for index, _ in places) == list(range(len(nodes)))
    assert {total for _, total in places} <= {len(nodes)}


def test_without_a_hint_the_given_order_is_kept() -> None:
    """Each document by itself; a beginning that one node lacks is none."""
    nodes = [node("b"), node("x", "other"), node("a", start=0), node("y", "other"), node("c", start=5)]
    assert order(nodes) == {"b": (0, 3), "a": (1, 3), "c": (2, 3), "x": (0, 2), "y": (1, 2)}
    chains = [node("d", previous="c"), node("b", previous="a"), node("c"), node("a")]
    assert list(order(chains).items()) == [("d", (1, 4)), ("b", (3, 4)), ("c", (0, 4)), ("a", (2, 4))]


def test_nodes_of_an_index_keep_their_place() -> None:
    """Even where only some of them are given."""
    nodes = [node_from_chunk(CHUNKS[number]) for number in (3, 1)]
    assert chunks_from_nodes(nodes) == [CHUNKS[3], CHUNKS[1]]


def test_nodes_of_a_splitter_are_in_order() -> None:
    """Which gives them both relationships and places."""
    text = " ".join(f"word{number}" for number in range(300))
    document = Document(id_="d", text=text, metadata={"file_path": "/notes/d.txt", "file_name": "d.txt"})
    nodes = TokenTextSplitter(chunk_size=64, chunk_overlap=8)([document])
    chunks = chunks_from_nodes(nodes)
    assert len(chunks) > 3
    assert [chunk.chunk_index for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert (chunk.document_id, chunk.source, chunk.title) == ("d", "/notes/d.txt", "d.txt")
        assert chunk.span is not None
        assert text[chunk.span.start : chunk.span.end] == chunk.text


@pytest.mark.parametrize(
    ("metadata", "source", "title"),
    [
        ({"file_path": "/a/b.pdf", "file_name": "b.pdf"}, "/a/b.pdf", "b.pdf"),
        ({"file_path": "/a/b.pdf", "file_name": "b.pdf", "title": "Moon", "source": "x"}, "/a/b.pdf", "Moon"),
        ({"document_title": "Moon", "file_name": "b", "url": "https://example.org"}, "https://example.org", "Moon"),
        ({"source": "s", "title": " "}, "s", None),
        ({"file_path": 1, "title": ["x"]}, None, None),
        ({}, None, None),
    ],
)
def test_the_source_and_the_title_are_what_readers_call_them(
    metadata: dict[str, Any], source: str | None, title: str | None
) -> None:
    """They stay in the metadata too."""
    chunk = chunk_from_node(TextNode(id_="n", text="n", metadata=metadata))
    assert (chunk.source, chunk.title) == (source, title)
    assert chunk.metadata == freeze(metadata)


@pytest.mark.parametrize(
    ("label", "page"),
    [("3", 3), ("12", 12), ("0", None), ("iv", None), ("٣", None), ("9" * 10, None), (3, 3), ("", None)],
)
def test_a_page_is_a_number_from_one(label: Any, page: int | None) -> None:
    """Other labels stay in the metadata alone."""
    chunk = chunk_from_node(TextNode(id_="n", text="n", metadata={"page_label": label}))
    assert chunk.page_span == (None if page is None else PageSpan(page, page))
