"""What holds of every split, whatever the text, the sizes and the tokenizer."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.ingest.readers.base import ParsedDocument, ParsedPage
from retrieval_core.ingest.split import ChunkSizes, split_document
from retrieval_core.types import Document, PageSpan, Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.ingest.readers.base import Markup
    from retrieval_core.types import Chunk, Section


def count_words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def count_bytes(text: str) -> int:
    """Count as a tokenizer of bytes would that knows no words: rounding makes the whole cheaper than its parts."""
    return -(-len(text.encode()) // 3)


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)
PROSE = st.lists(WORDS | st.sampled_from(["a.", "b!", "(c)", "e.g.", "x" * 90, "。"]), max_size=40).map(" ".join)
HEADING = st.tuples(st.integers(1, 6), PROSE).map(lambda parts: f"{'#' * parts[0]} {parts[1]}")
BLOCK = st.one_of(
    PROSE,
    HEADING,
    st.lists(PROSE, max_size=4).map("\n".join),
    PROSE.map(lambda text: f"{text}\n==="),
    st.lists(PROSE, max_size=4).map(lambda lines: "```\n# " + "\n    ".join(lines) + "\n```"),
    st.lists(WORDS, min_size=1, max_size=9).map(
        lambda rows: "|a|b|\n|-|-|\n" + "".join(f"|{row}|1|\n" for row in rows)
    ),
    st.lists(PROSE, min_size=1, max_size=5).map(lambda items: "\n".join(f"- {item}\n  - {item}" for item in items)),
    st.lists(st.tuples(st.integers(0, 4), PROSE), max_size=8).map(
        lambda lines: "\n".join(" " * 2 * depth + line for depth, line in lines)
    ),
    st.lists(PROSE, max_size=3).map(lambda lines: "> " + "\n> ".join(lines)),
    st.text(max_size=60),
)
TEXTS = st.lists(BLOCK, max_size=10).map("\n\n".join) | st.lists(BLOCK, max_size=10).map("\n".join)


@st.composite
def paged(draw: st.DrawFn) -> tuple[str, tuple[ParsedPage, ...]]:
    """A text, most of which may lie on pages, with gaps between them."""
    text = draw(TEXTS)
    bounds = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
    spans = zip(bounds[::2], bounds[1::2], strict=False)
    return text, tuple(ParsedPage(number, Span(*span)) for number, span in enumerate(spans, start=1))


@st.composite
def sizes(draw: st.DrawFn) -> ChunkSizes:
    most = draw(st.integers(16, 80))
    return ChunkSizes(most, draw(st.integers(0, most)), draw(st.none() | st.integers(32, 120)))


def split(
    text: str, sizes: ChunkSizes, count: Callable[[str], int], *, markup: Markup, pages: tuple[ParsedPage, ...] = ()
) -> tuple[tuple[Chunk, ...], tuple[Section, ...]]:
    parsed = ParsedDocument(text=text, markup=markup, pages=pages)
    document = Document(id="d", text=text, source="s", content_hash="", title="A title of the document")
    return split_document(parsed, document, sizes, count)


MARKUPS: st.SearchStrategy[Markup] = st.sampled_from(["markdown", "plain", "titled", "code"])
COUNTERS: st.SearchStrategy[Callable[[str], int]] = st.sampled_from([count_words, count_bytes])


@given(TEXTS, sizes(), COUNTERS, MARKUPS)
def test_chunks_are_ranges_that_hold_every_character_once(
    text: str, sizes: ChunkSizes, count: Callable[[str], int], markup: Markup
) -> None:
    """In order, without overlaps, never empty; only white space is left out."""
    chunks, _ = split(text, sizes, count, markup=markup)
    end = 0
    for index, chunk in enumerate(chunks):
        assert chunk.span is not None
        assert chunk.text == text[chunk.span.start : chunk.span.end]
        assert chunk.text.strip()
        assert not text[end : chunk.span.start].strip()
        assert chunk.span.start >= end
        assert (chunk.id, chunk.chunk_index, chunk.total_chunks) == (f"d#{index}", index, len(chunks))
        end = chunk.span.end
    assert not text[end:].strip()


@given(TEXTS, sizes(), COUNTERS, MARKUPS)
def test_no_chunk_is_longer_than_allowed(
    text: str, sizes: ChunkSizes, count: Callable[[str], int], markup: Markup
) -> None:
    """Neither its text, nor its text with title and headings."""
    chunks, _ = split(text, sizes, count, markup=markup)
    for chunk in chunks:
        assert count(chunk.text) <= sizes.max_tokens
        assert sizes.window is None or count(chunk.indexed_text) <= sizes.window


@given(paged(), sizes(), MARKUPS)
def test_parents_are_the_innermost_sections_around_chunks(
    document: tuple[str, tuple[ParsedPage, ...]], sizes: ChunkSizes, markup: Markup
) -> None:
    """Found by looking at all of them; several chunks always have parents."""
    text, pages = document
    chunks, sections = split(text, sizes, count_words, markup=markup, pages=pages)
    assert len({section.id for section in sections}) == len(sections)
    for chunk in chunks:
        assert chunk.span is not None
        around = [
            section
            for section in sections
            if section.span.start <= chunk.span.start and chunk.span.end <= section.span.end
        ]
        innermost = min(around, key=lambda section: section.span.end - section.span.start, default=None)
        if innermost is None:
            assert chunk.parent_id is None
            assert len(chunks) == 1
        else:
            parent = next(section for section in sections if section.id == chunk.parent_id)
            assert parent.span == innermost.span


@given(paged(), sizes(), MARKUPS)
def test_pages_of_a_chunk_are_those_it_touches(
    document: tuple[str, tuple[ParsedPage, ...]], sizes: ChunkSizes, markup: Markup
) -> None:
    """Found by looking at all of them."""
    text, pages = document
    chunks, _ = split(text, sizes, count_words, markup=markup, pages=pages)
    for chunk in chunks:
        assert chunk.span is not None
        touched = [
            page.number for page in pages if page.span.start < chunk.span.end and page.span.end > chunk.span.start
        ]
        assert chunk.page_span == (PageSpan(touched[0], touched[-1]) if touched else None)


@given(TEXTS, sizes())
def test_splitting_is_deterministic_and_headings_are_above_their_chunks(text: str, sizes: ChunkSizes) -> None:
    """The same text gives the same chunks; sections lie inside one another or apart."""
    first, sections = split(text, sizes, count_words, markup="markdown")
    assert (first, sections) == split(text, sizes, count_words, markup="markdown")
    for before, after in pairwise(sections):
        assert before.span.start <= after.span.start
        assert after.span.end <= before.span.end or after.span.start >= before.span.end
