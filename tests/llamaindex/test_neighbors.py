"""Neighbouring passages, read in one call, in the document's order and without duplicates."""

from __future__ import annotations

import asyncio
import pickle
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("llama_index.retrievers.retrieval_core", reason="needs llama-index-retrievers-retrieval-core")

from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index.postprocessor.retrieval_core import NeighborExpansionPostprocessor
from llama_index.retrievers.retrieval_core import node_from_chunk
from retrieval_core import open_index
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.errors import FilterError, InvalidParameterError, StoreError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk
from support.llamaindex_library import CHUNKS, Library, chunk, passage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

LONG = tuple(chunk("long.md", n, f"part {n}", 12) for n in range(12))


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    with Library(chunks=(*CHUNKS, *LONG)) as library:
        yield library


def nodes_of(*chunks: Chunk) -> list[NodeWithScore]:
    return [NodeWithScore(node=node_from_chunk(item), score=1.0 - n / 10) for n, item in enumerate(chunks)]


def expanded(library: Library, nodes: list[NodeWithScore], **arguments: Any) -> list[NodeWithScore]:
    """Return the nodes with neighbours, the same from the sync and the async method, also inside a running loop."""
    postprocessor = NeighborExpansionPostprocessor(library.store, **arguments)

    async def inside() -> Sequence[list[NodeWithScore]]:
        return await postprocessor.apostprocess_nodes(nodes), postprocessor.postprocess_nodes(nodes)

    result = postprocessor.postprocess_nodes(nodes)
    assert asyncio.run(inside()) == (result, result)
    postprocessor.close()
    postprocessor.close()
    return result


def ids(nodes: list[NodeWithScore]) -> list[str]:
    return [item.node.node_id for item in nodes]


def test_neighbours_stand_around_their_node_and_say_whose_they_are(library: Library) -> None:
    """The node is the one that was given, with its score; a neighbour has none."""
    given = nodes_of(LONG[5])
    result = expanded(library, given, before=1, after=2)
    assert ids(result) == ["long.md#4", "long.md#5", "long.md#6", "long.md#7"]
    assert result[1] is given[0]
    assert [item.score for item in result] == [None, 1.0, None, None]
    assert [passage(item).neighbor_of for item in result] == [["long.md#5"], [], *[["long.md#5"]] * 2]


def test_windows_that_touch_become_one_run_at_the_place_of_its_first_node(library: Library) -> None:
    """In the document's order; a neighbour of two nodes names both."""
    result = expanded(library, nodes_of(LONG[6], CHUNKS[0], LONG[4], LONG[10]), before=1, after=1)
    assert ids(result) == [
        *[f"long.md#{n}" for n in (3, 4, 5, 6, 7)],
        *["moon.md#0", "moon.md#1"],
        *[f"long.md#{n}" for n in (9, 10, 11)],
    ]
    assert passage(result[2]).neighbor_of == ["long.md#4", "long.md#6"]
    assert [item.score for item in result if item.score is not None] == pytest.approx([0.8, 1.0, 0.9, 0.7])


def test_the_store_is_asked_once_for_all_nodes(library: Library) -> None:
    """Also where windows of nodes overlap."""
    library.store.fetches.clear()
    NeighborExpansionPostprocessor(library.store).postprocess_nodes(nodes_of(LONG[1], LONG[3], CHUNKS[0], CHUNKS[5]))
    assert len(library.store.fetches) == 1


def test_the_store_is_not_asked_for_nothing(library: Library) -> None:
    """No nodes, none of ours, or no neighbours wanted."""
    library.store.fetches.clear()
    foreign = [NodeWithScore(node=TextNode(text="x"), score=0.5)]
    assert expanded(library, []) == []
    assert expanded(library, foreign) == foreign
    given = nodes_of(LONG[0])
    assert expanded(library, given, before=0, after=0) == given
    assert library.store.fetches == []


@pytest.mark.parametrize(
    "node",
    [
        TextNode(id_="somewhere else#3", text="x"),
        TextNode(id_="long.md#99", text="x"),
        TextNode(id_="long.md#1234567890123", text="x"),
        TextNode(id_="long.md#٣", text="x"),
        TextNode(id_="#", text="x"),
        # Looks like ours, but the store has another passage at that position.
        node_from_chunk(Chunk("other", "long.md", "x", chunk_index=3, total_chunks=12)),
    ],
)
def test_nodes_of_other_retrievers_pass_through_unchanged(library: Library, node: TextNode) -> None:
    """At their place, also where they look like ours by chance."""
    given = [NodeWithScore(node=node, score=0.5), *nodes_of(LONG[8])]
    result = expanded(library, given)
    assert result[0] is given[0]
    assert ids(result[1:]) == ["long.md#7", "long.md#8", "long.md#9"]


def test_nodes_of_other_retrievers_with_our_ids_get_their_neighbours(library: Library) -> None:
    """A vector store of LlamaIndex may keep passages of ours and nothing but id and text."""
    given = [NodeWithScore(node=TextNode(id_="long.md#3", text="part 3"), score=0.5)]
    assert ids(expanded(library, given)) == ["long.md#2", "long.md#3", "long.md#4"]


def test_filters_hold_for_neighbours(library: Library) -> None:
    """What the retriever may not see must not come in beside what it may."""
    result = expanded(library, nodes_of(CHUNKS[1]), before=5, after=5, filters={"year": {"$lte": 1971}})
    assert ids(result) == ["moon.md#0", "moon.md#1", "moon.md#2"]
    given = nodes_of(CHUNKS[1])
    assert expanded(library, given, filters={"kind": "star"}) == given


def test_chunks_that_share_a_position_are_not_neighbours() -> None:
    """Those that were added by hand are all at position 0 unless told otherwise."""
    by_hand = (Chunk("a", "faq", "one"), Chunk("b", "faq", "two"), Chunk("c", "faq", "three", chunk_index=1))
    with Library(chunks=by_hand) as library:
        assert ids(expanded(library, nodes_of(by_hand[0]))) == ["a", "c"]
        assert ids(expanded(library, nodes_of(by_hand[1], by_hand[0]))) == ["a", "b", "c"]


@given(st.lists(st.integers(0, 11), max_size=8), st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any))
def test_every_passage_of_every_window_comes_exactly_once(
    library: Library, places: list[int], reach: tuple[int, int]
) -> None:
    """Also where a node was given twice: in runs without a gap, each at the place of the first node in it."""
    before, after = reach
    given = nodes_of(*(LONG[place] for place in places))
    postprocessor = NeighborExpansionPostprocessor(library.store, before=before, after=after)
    result = asyncio.run(postprocessor.apostprocess_nodes(given))
    wanted = {n for place in places for n in range(max(0, place - before), min(11, place + after) + 1)}
    runs = [[n] for n in sorted(wanted) if n - 1 not in wanted]
    for run in runs:
        run.extend(takewhile(wanted.__contains__, count(run[0] + 1)))
    runs.sort(key=lambda run: next(at for at, place in enumerate(places) if place in run))
    assert ids(result) == [f"long.md#{n}" for run in runs for n in run]
    scores = {item.node.node_id: item.score for item in reversed(given)}
    assert {item.node.node_id: item.score for item in result if item.score is not None} == scores


@pytest.mark.parametrize(
    "wrong", [{"before": -1}, {"after": -1}, {"before": 1.5}, {"after": True}, {"include_parents": True}]
)
def test_settings_outside_their_range_are_refused(library: Library, wrong: dict[str, Any]) -> None:
    """By name."""
    with pytest.raises(InvalidParameterError, match=next(iter(wrong))):
        NeighborExpansionPostprocessor(library.store, **wrong)
    with pytest.raises(FilterError):
        NeighborExpansionPostprocessor(library.store, filters={"$unknown": 1})


@pytest.mark.parametrize("wrong", ["a store", None, MemoryStore])
def test_what_is_no_store_is_refused_at_once(wrong: Any) -> None:
    """With its type alone."""
    with pytest.raises(InvalidParameterError, match="store must be an object") as caught:
        NeighborExpansionPostprocessor(wrong)
    assert "a store" not in str(caught.value)


def test_it_cannot_be_pickled(library: Library) -> None:
    """LlamaIndex would leave out what cannot be, and give back something that fails."""
    with pytest.raises(TypeError, match="NeighborExpansionPostprocessor cannot be pickled"):
        pickle.dumps(NeighborExpansionPostprocessor(library.store))


def test_it_reads_from_a_file_too_and_its_errors_are_ours(tmp_path: Path) -> None:
    """The default store, open and closed."""
    with open_index(tmp_path / "index.db", embedder=FakeEmbedder()) as index:
        index.add(LONG)
        postprocessor = NeighborExpansionPostprocessor(index.store)
        assert len(postprocessor.postprocess_nodes(nodes_of(LONG[5]))) == 3
    with pytest.raises(StoreError):
        postprocessor.postprocess_nodes(nodes_of(LONG[5]))
    postprocessor.close()
    assert postprocessor.class_name() == "NeighborExpansionPostprocessor"
