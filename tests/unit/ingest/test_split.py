"""Chunks and sections of documents whose right answer is plain to see."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import InvalidParameterError
from retrieval_core.ingest.readers.base import ParsedDocument, ParsedPage
from retrieval_core.ingest.split import ChunkSizes, fit_headings, split_document
from retrieval_core.types import Document, PageSpan, Span

if TYPE_CHECKING:
    from retrieval_core.ingest.readers.base import Markup
    from retrieval_core.types import Chunk, Section


def count_words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def count_characters(text: str) -> int:
    return len(text)


def split(
    text: str,
    max_tokens: int = 30,
    min_tokens: int = 0,
    *,
    window: int | None = None,
    markup: Markup = "markdown",
    title: str | None = None,
    pages: tuple[ParsedPage, ...] = (),
    row: int | None = None,
) -> tuple[tuple[Chunk, ...], tuple[Section, ...]]:
    parsed = ParsedDocument(text=text, markup=markup, title=title, pages=pages, row=row)
    document = Document(id="d", text=text, source="d.md", content_hash="", title=title, metadata={"lang": "en"})
    sizes = ChunkSizes(max_tokens, min_tokens, window)
    return split_document(parsed, document, sizes, count_words, embedding_model="m")


def texts(text: str, max_tokens: int = 30, min_tokens: int = 0, *, markup: Markup = "markdown") -> list[str]:
    return [chunk.text for chunk in split(text, max_tokens, min_tokens, markup=markup)[0]]


def words(count: int, word: str = "word") -> str:
    return " ".join(f"{word}{number}" for number in range(count))


def test_each_section_is_a_chunk_with_its_headings() -> None:
    """Headings of both kinds open sections; a hash in code does not; a heading without text goes with the next."""
    chunks, sections = split(
        "Before.\n\nTop\n===\n\n## A *b* {#x}\n\nUnder a.\n\n```\n# not a heading\n```\n\n### Deep\n\nUnder deep.\n\n"
        "## C\n\nUnder c.\n"
    )
    assert [(chunk.text.split("\n")[0], chunk.section_path) for chunk in chunks] == [
        ("Before.", ()),
        ("Top", ("Top", "A b")),
        ("### Deep", ("Top", "A b", "Deep")),
        ("## C", ("Top", "C")),
    ]
    assert [(section.id, section.path) for section in sections] == [
        ("d#section-0", ()),
        ("d#section-1", ("Top",)),
        ("d#section-2", ("Top", "A b")),
        ("d#section-3", ("Top", "A b", "Deep")),
        ("d#section-4", ("Top", "C")),
    ]
    assert [chunk.parent_id for chunk in chunks] == ["d#section-0", "d#section-1", "d#section-3", "d#section-4"]


def test_chunks_carry_what_is_needed_to_cite_them() -> None:
    """Ids, positions, source, metadata and model come with every chunk."""
    chunks, _ = split("# A\n\none\n\n# B\n\ntwo", title="T")
    assert [chunk.id for chunk in chunks] == ["d#0", "d#1"]
    assert [chunk.chunk_index for chunk in chunks] == [0, 1]
    for chunk in chunks:
        assert (chunk.document_id, chunk.total_chunks, chunk.title, chunk.source) == ("d", 2, "T", "d.md")
        assert (chunk.embedding_model, dict(chunk.metadata)) == ("m", {"lang": "en"})
    assert chunks[0].indexed_text == "T > A\n# A\n\none"


def test_small_sections_are_joined_under_their_common_heading() -> None:
    """Up to the minimum; what stays too small at the end goes to the one before it."""
    text = "# Top\n\n" + "\n\n".join(f"## S{number}\n\nfour words are here" for number in range(5))
    chunks, _ = split(text, 30, 20)
    assert [re.findall(r"S\d", chunk.text) for chunk in chunks] == [["S0", "S1", "S2"], ["S3", "S4"]]
    assert [chunk.section_path for chunk in chunks] == [("Top",), ("Top",)]
    assert len(split(text, 30, 0)[0]) == 5
    assert [re.findall(r"S\d", chunk.text) for chunk in split(text, 30, 8)[0]] == [["S0"], ["S1", "S2"], ["S3", "S4"]]


def test_large_sections_are_not_joined() -> None:
    """A small one keeps its own heading where its neighbours leave no room."""
    text = f"# A\n\n{words(28)}\n\n# B\n\nsmall\n\n# C\n\n{words(28)}"
    assert [chunk.section_path for chunk in split(text, 30, 10)[0]] == [("A",), ("B",), ("C",)]


def test_paragraphs_tables_lists_and_code_stay_whole_where_they_fit() -> None:
    """Blocks are the first places to cut, and chunks come out about equally long."""
    code = "```\none\n\ntwo\n```"
    table = "| a | b |\n|---|---|\n| 1 | 2 |"
    items = "- one\n\n  more\n- two"
    text = "\n\n".join([words(12), code, words(12), table, items])
    assert texts(text, 30) == [f"{words(12)}\n\n{code}", words(12), f"{table}\n\n{items}"]


def test_long_prose_is_cut_after_sentences_of_even_chunks() -> None:
    """Line breaks inside a sentence and full stops of abbreviations are no place to cut."""
    sentence = "This e.g. is\na sentence of ten words in all [3]. "
    assert texts(sentence * 6, 55) == [(sentence * 3).rstrip()] * 2
    assert texts("これは文です。次の文です。" * 10, 16)[0].endswith("。")


def test_long_tables_lists_and_code_are_cut_between_lines() -> None:
    """Chunks of rows or items alone say which, the heading of the section apart."""
    rows = "\n".join(f"| {number} | x |" for number in range(1, 21))
    chunks, _ = split(f"# T\n\n| n | v |\n|---|---|\n{rows}\n\nend", 40)
    assert [chunk.row_range for chunk in chunks] == [(1, 3), (4, 9), (10, 15), None]
    assert all(line.startswith("|") for chunk in chunks[1:3] for line in chunk.text.split("\n"))
    items = "\n".join(f"{number}. item\n    - nested" for number in range(1, 13))
    chunks, _ = split(items, 20)
    assert [chunk.item_range for chunk in chunks] == [(1, 4), (5, 8), (9, 12)]
    code = "\n".join(f"    x = {number}" for number in range(20))
    chunks, _ = split(f"```\n{code}\n```", 25)
    assert chunks[1].text.startswith("    x = ")


@pytest.mark.parametrize("markup", ["markdown", "plain"])
def test_the_number_of_an_item_stays_with_its_words(markup: Markup) -> None:
    """The full stop behind the number of an item that has to be cut ends no sentence."""
    nine, twelve = words(9, "Word"), words(12, "Word")
    assert texts(f"9. {nine}.\n10. {twelve}. {twelve}.", 16, markup=markup) == [
        f"9. {nine}.",
        f"10. {twelve}.",
        f"{twelve}.",
    ]


def test_a_part_of_a_list_item_belongs_to_its_item() -> None:
    """An item that does not fit gives several chunks of the same range."""
    chunks, _ = split(f"- {words(50)}\n- short", 30)
    assert [chunk.item_range for chunk in chunks] == [(1, 1), (1, 2)]


def test_words_are_cut_evenly_and_only_then_characters() -> None:
    """A text without any punctuation, and one without spaces."""
    assert [count_words(text) for text in texts(words(70), 30)] == [26, 26, 18]
    sizes = ChunkSizes(16, 0)
    text = "e\u0301" * 60
    parsed = ParsedDocument(text=text, markup="plain")
    chunks, _ = split_document(parsed, Document("d", text, "s", ""), sizes, count_characters)
    assert "".join(chunk.text for chunk in chunks) == text
    assert all(chunk.text.startswith("e") and len(chunk.text) <= 16 for chunk in chunks)
    pile = "a" + "\u0301" * 40
    chunks, _ = split_document(ParsedDocument(pile, "plain"), Document("d", pile, "s", ""), sizes, count_characters)
    assert "".join(chunk.text for chunk in chunks) == pile
    costly, _ = split_document(
        ParsedDocument("ab", "plain"), Document("d", "ab", "s", ""), sizes, lambda text: 20 * len(text)
    )
    assert [chunk.text for chunk in costly] == ["a", "b"]


def test_a_heading_too_long_for_a_chunk_is_cut_too() -> None:
    """Nothing is lost, and the text below it follows."""
    assert " ".join(texts(f"# {words(40)}\n\n{words(40, 'text')}", 30)) == f"# {words(40)} {words(40, 'text')}"


def test_counts_that_grow_when_pieces_are_joined() -> None:
    """The whole is counted, not the sum of its parts."""
    text = "aa.\n\nbb.\n\ncc.\n\ndd."

    def count(text: str) -> int:
        return 4 if len(text) < 4 else 10 * text.count("\n\n")

    chunks, _ = split_document(ParsedDocument(text, "plain"), Document("d", text, "s", ""), ChunkSizes(16, 0), count)
    assert [chunk.text for chunk in chunks] == ["aa.\n\nbb.", "cc.\n\ndd."]


def test_plain_text_has_no_markup() -> None:
    """A hash is a character, blank lines separate, and one section holds it all."""
    chunks, sections = split("# not a heading\nline\n\n" + words(28), markup="plain")
    assert [chunk.section_path for chunk in chunks] == [(), ()]
    assert [(section.id, section.path, section.kind) for section in sections] == [("d#section-0", (), "section")]
    assert {chunk.parent_id for chunk in chunks} == {"d#section-0"}
    chunks, sections = split("short", markup="plain", row=7)
    assert (chunks[0].parent_id, chunks[0].row_range, sections) == (None, (7, 7), ())


def test_what_markdown_makes_nothing_of_is_kept() -> None:
    """Link definitions have no place in the tree of a parser."""
    assert texts("[a]: http://x\n\nText [a].\n\n[b]: http://y") == ["[a]: http://x\n\nText [a].\n\n[b]: http://y"]
    assert texts("# A\n[a]: http://x\n# B\ntext", min_tokens=0) == ["# A\n[a]: http://x", "# B\ntext"]


def test_headings_in_lists_and_quotations_and_without_words() -> None:
    """The first two structure their block, the last has no name to give."""
    chunks, sections = split("- # in a list\n\n> # quoted\n\n#\n\nunnamed")
    assert [chunk.section_path for chunk in chunks] == [(), ()]
    assert [section.path for section in sections] == [(), ()]


def pages_of(text: str, *starts: int) -> tuple[ParsedPage, ...]:
    ends = (*starts[1:], len(text))
    return tuple(
        ParsedPage(number, Span(start, start + len(text[start:end].rstrip())))
        for number, (start, end) in enumerate(zip(starts, ends, strict=True), start=1)
    )


def test_pages_are_parents_where_there_are_no_headings() -> None:
    """A chunk over a page break spans both pages, and lies in the document as a whole."""
    text = f"{words(20)}\n\n{words(20)}\n\n{words(4)}\n\n{words(20)}"
    second, third = text.index("\n\n") + 2, text.index("word0 word1 word2 word3\n")
    pages = pages_of(text, 0, second, third)
    chunks, sections = split(text, 30, pages=pages)
    assert [chunk.page_span for chunk in chunks] == [PageSpan(1, 1), PageSpan(2, 3), PageSpan(3, 3)]
    assert [section.id for section in sections] == ["d#section-0", "d#page-1", "d#page-2", "d#page-3"]
    assert [chunk.parent_id for chunk in chunks] == ["d#page-1", "d#section-0", "d#page-3"]
    assert sections[0].page_span == PageSpan(1, 3)


def test_pages_under_headings() -> None:
    """Sections know their pages; a page without text is no parent."""
    text = "# A\n\none\n\n# B\n\ntwo"
    chunks, sections = split(text, pages=pages_of(text, 0, text.index("# B")))
    assert [section.page_span for section in sections] == [PageSpan(1, 1), PageSpan(2, 2)]
    assert [chunk.page_span for chunk in chunks] == [PageSpan(1, 1), PageSpan(2, 2)]
    assert split("x", pages=(ParsedPage(1, Span(0, 0)), ParsedPage(2, Span(0, 1))))[1][0].id == "d#page-2"


def test_headings_are_shortened_to_leave_room_for_the_text() -> None:
    """They take at most half of the window; the outermost go first where nothing else helps."""
    long = words(60, "heading")
    (first, *_), sections = split(f"# {long}\n\n{words(60)}", 40, window=64, title=words(40, "title"))
    assert count_words(first.indexed_text) <= 64
    assert first.section_path[0].endswith("…")
    assert first.title
    assert first.title.endswith("…")
    assert sections[0].path == (long,)
    path = "\n\n".join(f"{'#' * level} {'x ' * 30}{level}" for level in range(1, 7))
    chunks, _ = split(f"{path}\n\n{words(20)}", 40, window=32, title="x " * 30)
    assert all(count_words(chunk.indexed_text) <= 32 for chunk in chunks)
    parsed = ParsedDocument(text="# a\n\ntext", markup="markdown")
    narrow = ParsedDocument(text="# aaaaaaaaaaaaa\n\n## bbbbbbbbbbbbb\n\ntext", markup="markdown")
    document = Document("d", narrow.text, "s", "", title="t" * 30)
    (*_, last), _ = split_document(narrow, document, ChunkSizes(16, 0, 32), count_characters)
    assert (last.title, last.section_path) == (None, ("bbbbbbbbb…",))
    assert fit_headings(None, ("abc",), 32, lambda text: 99) == (None, (), 0)
    heavy, _ = split_document(
        parsed, Document("d", parsed.text, "s", ""), ChunkSizes(16, 0, 32), lambda text: 9 * len(text.split())
    )
    assert heavy[0].section_path == ("a",)


def test_an_empty_document_has_no_chunks() -> None:
    """Readers do not make one, but nothing breaks."""
    assert split("") == ((), ())
    assert split(" \n\n ", markup="plain") == ((), ())


@pytest.mark.parametrize("sizes", [(15, 0, None), (30, 31, None), (30, -1, None), (30, 0, 31)])
def test_sizes_outside_their_range_are_refused(sizes: tuple[int, int, int | None]) -> None:
    """The message names the setting."""
    with pytest.raises(InvalidParameterError, match="must be"):
        ChunkSizes(*sizes)
