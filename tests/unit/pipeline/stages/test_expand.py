from __future__ import annotations

from typing import Any

import pytest

from retrieval_core.config import ContextConfig
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.stages.expand import (
    Surroundings,
    as_hits,
    expand,
    surroundings_in,
    surroundings_of,
    surroundings_request,
)
from retrieval_core.ports import ChunkRange, Fetched, FetchRequest
from retrieval_core.types import Chunk, Document, Hit, PageSpan, Section, Span
from retrieval_core.types.filters import Eq
from retrieval_core.types.filters.syntax import parse_filter

ALONE = ContextConfig(neighbor_same_page=0, neighbor_cross_page=0, include_parents=False)


def part(index: int, *, name: str | None = None, page: int | None = None, parent: str | None = None) -> Chunk:
    """Return a chunk of the document ``d`` at a position."""
    pages = None if page is None else PageSpan(page, page)
    return Chunk(name or f"d#{index}", "d", f"Text {index}.", index, page_span=pages, parent_id=parent)


def hits(*chunks: Chunk) -> tuple[Hit, ...]:
    return as_hits(chunks, [1 / rank for rank in range(1, len(chunks) + 1)])


def roles(found: tuple[Hit, ...], around: Surroundings, **settings: int | bool) -> list[tuple[str, str]]:
    items = expand(found, around, ContextConfig(**settings))  # pyright: ignore[reportArgumentType]
    return [(item.id, item.role) for item in items]


def test_the_order_of_roles() -> None:
    """Each primary is followed by its parent; siblings and then neighbours on other pages come last."""
    chunks = [part(index, page=index // 3, parent=f"s{index // 3}") for index in range(9)]
    parents = [Chunk(f"s{number}", "d", "…") for number in range(3)]
    assert roles(hits(chunks[7], chunks[2]), surroundings_in([*chunks, *parents])) == [
        ("d#7", "primary"),
        ("s2", "parent"),
        ("d#2", "primary"),
        ("s0", "parent"),
        ("d#6", "sibling"),
        ("d#8", "sibling"),
        ("d#1", "sibling"),
        ("d#5", "cross_page"),
        ("d#3", "cross_page"),
        ("d#4", "cross_page"),
    ]


def test_without_pages_other_sections_are_no_neighbours() -> None:
    """What stands beside a hit in another section says something else; a window takes it all the same."""
    chunks = [part(index, parent=f"s{index // 2}") for index in range(4)]
    assert roles(hits(chunks[1]), surroundings_in(chunks)) == [("d#1", "primary"), ("d#0", "sibling")]
    assert roles(hits(chunks[1]), surroundings_in(chunks), window=1) == [
        ("d#1", "primary"),
        ("d#0", "sibling"),
        ("d#2", "cross_page"),
    ]


def test_pages_are_the_border_where_they_are_known() -> None:
    """Neighbours on the page are siblings whatever their section; those on adjacent pages come last, others not."""
    pages = [1, 2, 3, 3, 4, 6]
    chunks = [part(index, page=page, parent=f"s{index}") for index, page in enumerate(pages)]
    assert roles(hits(chunks[3]), surroundings_in(chunks), neighbor_same_page=1, neighbor_cross_page=3) == [
        ("d#3", "primary"),
        ("d#2", "sibling"),
        ("d#1", "cross_page"),
        ("d#4", "cross_page"),
    ]


def test_what_shares_a_parent_is_a_sibling_on_another_page_too() -> None:
    """The specification names the page in one step and the parent in another: either makes siblings."""
    chunks = [part(index, page=1 + index // 2, parent="s" if 0 < index < 5 else f"s{index}") for index in range(6)]
    assert roles(hits(chunks[3]), surroundings_in(chunks), neighbor_same_page=1, neighbor_cross_page=0) == [
        ("d#3", "primary"),
        ("d#2", "sibling"),
        ("d#4", "sibling"),
    ]
    assert roles(hits(chunks[3]), surroundings_in(chunks), neighbor_same_page=0, neighbor_cross_page=2) == [
        ("d#3", "primary"),
        ("d#1", "cross_page"),
        ("d#4", "cross_page"),
        ("d#5", "cross_page"),
    ]
    with_no_parent = [part(0, page=1), part(1, page=2)]
    assert roles(hits(with_no_parent[0]), surroundings_in(with_no_parent))[1:] == [("d#1", "cross_page")]


def test_each_chunk_counts_once_under_its_best_role() -> None:
    """What is a hit itself is no neighbour, and a neighbour of two hits belongs to the better one."""
    chunks = [part(index) for index in range(4)]
    items = expand(hits(chunks[2], chunks[0], chunks[2]), surroundings_in(chunks), ContextConfig())
    assert [(item.id, item.role, item.rank, item.distance) for item in items] == [
        ("d#2", "primary", 0, 0),
        ("d#0", "primary", 1, 0),
        ("d#1", "sibling", 0, 1),
        ("d#3", "sibling", 0, 1),
    ]


def test_a_better_role_under_a_worse_hit_wins() -> None:
    """A chunk across the page of the best hit and on the page of the next one is a sibling."""
    chunks = [part(0, page=1), part(1, page=2), part(2, page=2)]
    items = expand(hits(chunks[0], chunks[2]), surroundings_in(chunks), ContextConfig())
    assert [(item.id, item.role, item.rank) for item in items][2:] == [("d#1", "sibling", 1)]


def test_windows_take_the_place_of_neighbours() -> None:
    """Within a window every chunk counts, however far its page is."""
    chunks = [part(index, page=1 + 5 * index) for index in range(5)]
    found = roles(hits(chunks[1]), surroundings_in(chunks), window=2, neighbor_same_page=9)
    assert found == [("d#1", "primary"), ("d#0", "cross_page"), ("d#2", "cross_page"), ("d#3", "cross_page")]


def test_nothing_is_put_around_hits_where_that_is_off() -> None:
    """Without neighbours and parents there are hits only, and nothing to ask a store for."""
    chunks = [part(index, parent="s") for index in range(3)]
    around = surroundings_in([*chunks, Chunk("s", "d", "All.")])
    assert [item.id for item in expand(hits(chunks[1]), around, ALONE)] == ["d#1"]
    assert surroundings_request(hits(chunks[1]), ALONE, None) is None


@pytest.mark.parametrize(
    "others",
    [
        [part(0, name="a"), part(0, name="b")],
        [Chunk("a", "another", "Text", 1)],
        [part(1, name="a", parent="d#0")],
    ],
    ids=["all at position 0", "of another document", "a part of the hit"],
)
def test_what_is_no_neighbour(others: list[Chunk]) -> None:
    """A chunk at the hit's own position, of another document, or inside the hit does not stand beside it."""
    assert [name for name, _ in roles(hits(part(0)), surroundings_in([part(0), *others]))] == ["d#0"]


def test_positions_that_repeat() -> None:
    """All chunks at a position within reach are neighbours."""
    around = surroundings_in([part(1, name="b"), part(1, name="a"), part(3)])
    assert roles(hits(part(0)), around) == [("d#0", "primary"), ("a", "sibling"), ("b", "sibling")]


def test_a_chunk_that_is_its_own_parent_is_no_parent() -> None:
    """Such a chunk stays a neighbour of others, and is not put behind itself."""
    chunks = [part(0, page=1, parent="d#0"), part(1, page=2, parent="d#1")]
    assert roles(hits(chunks[0]), surroundings_in(chunks)) == [("d#0", "primary"), ("d#1", "cross_page")]


def test_a_parent_that_was_found_itself_is_a_primary() -> None:
    """It is there once, at its own rank."""
    chunks = [part(0, name="s"), part(1, parent="s"), part(2, parent="s")]
    assert roles(hits(chunks[1], chunks[0]), surroundings_in(chunks)) == [
        ("d#1", "primary"),
        ("s", "primary"),
        ("d#2", "sibling"),
    ]


@pytest.mark.parametrize("span", [Span(0, 3), Span(-7, 0), Span(1, 8)], ids=["length", "negative", "elsewhere"])
def test_a_span_that_cannot_be_true_is_left_out(span: Span) -> None:
    """A quote has a place only where its text may stand."""
    found = hits(Chunk("d#0", "d", "Text 0.", span=span))
    (item,) = expand(found, Surroundings({}, {}, {"d": "Text 0. And more."}), ALONE)
    assert item.quotes[0].span is None
    (item,) = expand(hits(Chunk("d#0", "d", "Text 0.", span=Span(0, 7))), Surroundings({}, {}, {}), ALONE)
    assert item.quotes[0].span == Span(0, 7)


def test_one_request_reads_what_stands_around_all_hits() -> None:
    """Positions that touch are one range; parents and documents are named once; the filter comes along."""
    found = hits(part(1, parent="s0"), part(9, parent="s1"), part(4, parent="s0"), Chunk("e#5", "e", "Text", 5))
    condition = Eq("brand", "Acme")
    assert surroundings_request(found, ContextConfig(), condition) == FetchRequest(
        ranges=(ChunkRange("d", 0, 11), ChunkRange("e", 3, 7)),
        section_ids=("s0", "s1"),
        document_ids=("d", "e"),
        filter=condition,
    )
    apart = surroundings_request(found, ContextConfig(neighbor_cross_page=1, include_parents=False), None)
    ranges = (ChunkRange("d", 0, 5), ChunkRange("d", 8, 10), ChunkRange("e", 4, 6))
    assert apart == FetchRequest(ranges=ranges)
    window = surroundings_request(found[:1], ContextConfig(window=7, include_parents=False), None)
    assert window == FetchRequest(ranges=(ChunkRange("d", 0, 8),), document_ids=("d",))


def test_sections_of_a_store_become_parents() -> None:
    """A section takes text, title and source from its document; one whose document is missing is left out."""
    document = Document("d", "Title\nText 0.", "d.md", "hash", title="Guide")
    sections = {
        "s": Section("s", "d", "section", ("Setup",), Span(6, 13), PageSpan(1, 2)),
        "t": Section("t", "gone", "page", (), Span(0, 1)),
    }
    around = surroundings_of(Fetched({"d#0": part(0)}, sections=sections, documents={"d": document}))
    section = Chunk(
        "s",
        "d",
        "Text 0.",
        page_span=PageSpan(1, 2),
        section_path=("Setup",),
        span=Span(6, 13),
        title="Guide",
        source="d.md",
    )
    assert around == Surroundings({"d#0": part(0)}, {"s": section}, {"d": document.text})


def test_hits_from_elsewhere() -> None:
    """Chunks keep their order, and each needs a score."""
    found = as_hits([part(1), part(0)], [3.0, 2.0])
    assert [(hit.id, hit.score, hit.scores.final) for hit in found] == [("d#1", 3.0, 3.0), ("d#0", 2.0, 2.0)]
    with pytest.raises(InvalidParameterError, match="got 2 chunks and 1 scores"):
        as_hits([part(1), part(0)], [1.0])


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        (None, True),
        ({"tenant": "a"}, True),
        ({"tenant": "b"}, False),
        ({"document_id": "d"}, True),
        ({"page": {"$lte": 3}}, False),
        ({"$and": [{"tenant": "a"}, {"$not": {"chunk_index": 1}}]}, False),
        ({"section": {"$ne": "Secret"}}, False),
        ({"label": {"$ne": "secret"}}, False),
        ({"$not": {"label": "secret"}}, False),
    ],
)
def test_a_section_needs_a_filter_that_lets_its_whole_document_pass(
    condition: dict[str, Any] | None, shown: bool
) -> None:
    document = Document("d", "Public. Secret.", "d.md", "", metadata={"tenant": "a"})
    section = Section("s", "d", "section", (), Span(0, 15))
    fetched = Fetched(sections={"s": section}, documents={"d": document})
    around = surroundings_of(fetched, None if condition is None else parse_filter(condition))
    assert (set(around.parents) == {"s"}) is shown


def test_chunks_that_are_each_others_parents_are_no_parents() -> None:
    chunks = [part(0, parent="d#1"), part(1, parent="d#0"), part(2, parent="d#0")]
    around = surroundings_in(chunks)
    assert set(around.chunks) == {"d#0", "d#1", "d#2"}
    assert around.parents == {}
