"""Files and folders that were made to do harm, or just are unlucky."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest.files import discover
from retrieval_core.ingest.readers import read_file
from retrieval_core.ingest.readers.base import ParsedDocument
from retrieval_core.ingest.readers.rows import LONGEST_CELL, RowError, parse_rows
from retrieval_core.ingest.split import ChunkSizes, split_document
from retrieval_core.text.markdown import parse_markdown
from retrieval_core.types import Document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def is_read(path: Path) -> bool:
    """Whether a file counts in these tests."""
    return path.suffix == ".md"


LINES = [
    "# h",
    "a",
    "b c",
    "- x",
    "  y",
    "    z",
    "1. q",
    "```",
    "~~~",
    "> q",
    "|a|b|",
    "|-|-|",
    "---",
    "===",
    "<div>",
    "</div>",
    "<!--",
    "-->",
    "[a]: /u",
    "[b]:",
    "/v 'ti",
    "tle'",
    "***",
    "",
    "\ttab",
]


def reason(path: Path) -> str:
    with pytest.raises(UnreadableFileError) as caught:
        list(read_file(path))
    return caught.value.reason


@pytest.mark.parametrize("length", [70_000, 140_000, 1_000_000, 3_000_000])
@pytest.mark.parametrize("quote", ["", '"'])
def test_long_cells_are_read(tmp_path: Path, length: int, quote: str) -> None:
    """RFC 4180 knows no limit, and the standard library's of 128 KiB is that of the whole process."""
    first, second = "a" * length, "b" * length
    path = tmp_path / "a.csv"
    path.write_text(f"text,other\n{quote}{first}{quote},{quote}{second}{quote}\n")
    (document,) = read_file(path)
    assert document.text == first
    assert document.metadata == {"other": second}


def test_a_header_of_many_columns_is_read(tmp_path: Path) -> None:
    """A hundred thousand names are looked at once each, not once for each other."""
    path = tmp_path / "a.csv"
    names = [f"c{number}" for number in range(100_000)]
    path.write_text("text," + ",".join(names) + "\nhello," + ",".join("1" for _ in names) + "\n")
    (document,) = read_file(path)
    assert document.text == "hello"
    assert len(document.metadata) == len(names)


def test_a_quotation_mark_left_open_is_found_out() -> None:
    """What is refused is a cell above the documented limit, before the rest of the file is in memory."""
    lines = iter(["a,b\n", '"', *["x" * 1_000_000] * 100])
    rows = parse_rows(lines, ",")
    assert next(rows) == (1, ["a", "b"])
    with pytest.raises(RowError, match=f"line 13: field larger than field limit .{LONGEST_CELL}"):
        next(rows)
    assert len(list(lines)) > 80


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (['a,"b ""c""",d\r\n'], [(1, ["a", 'b "c"', "d"])]),
        (['"a\n', 'b",c\n', "\n", ",\n"], [(2, ["a\nb", "c"]), (4, ["", ""])]),
        (['"",""'], [(1, ["", ""])]),
        (['a"b,"c",'], [(1, ['a"b', "c", ""])]),
    ],
)
def test_rows_are_those_of_rfc_4180(lines: list[str], rows: list[tuple[int, list[str]]]) -> None:
    """Doubled marks, line ends in cells, marks in the middle of a cell without them."""
    assert list(parse_rows(lines, ",")) == rows


@pytest.mark.parametrize("depth", [900, 100_000])
def test_deep_json_is_one_unreadable_file(tmp_path: Path, depth: int) -> None:
    """The parser's own depth is bounded; what it lets through is refused where it would break what comes after."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a", "deep": ' + "[" * depth + "]" * depth + "}\n")
    assert "nested too deeply" in reason(path)


@pytest.mark.parametrize(
    ("matter", "expected"),
    [
        ("a: &a [*a]", "its front matter is nested too deeply"),
        ("deep: " + "[" * 100_000, "its front matter is nested too deeply"),
        ("deep: " + "[" * 100 + "]" * 100, "its front matter is nested too deeply"),
        ("a: &a [x,x,x,x]\n" + "".join(f"{b}: &{b} [*{a},*{a},*{a},*{a}]\n" for a, b in pairwise("abcdefghi")),
         "its front matter has more than 10,000 values"),
        ("a: &a {k: 1}\n" + "".join(f"{b}: &{b}\n  <<: [*{a},*{a},*{a}]\n" for a, b in pairwise("abcdefghi")),
         "its front matter has too many merge keys"),
    ],
)  # fmt: skip
def test_hostile_front_matter_is_one_unreadable_file(tmp_path: Path, matter: str, expected: str) -> None:
    """Brackets without end, and aliases that stand for billions of values."""
    path = tmp_path / "a.md"
    path.write_text(f"---\n{matter}\n---\ntext\n")
    assert reason(path) == expected


def folders(tmp_path: Path) -> Path:
    """Make a folder with links: to files and folders, inside and outside, and in a circle."""
    docs, outside = tmp_path / "docs", tmp_path / "outside"
    (docs / "sub").mkdir(parents=True)
    outside.mkdir()
    (docs / "sub/a.md").write_text("a")
    (outside / "secret.md").write_text("secret")
    (docs / "inside.md").symlink_to("sub/a.md")
    (docs / "leak.md").symlink_to(outside / "secret.md")
    (docs / "folder").symlink_to(outside, target_is_directory=True)
    (docs / "zero.md").symlink_to("/dev/zero")
    (docs / "loop.md").symlink_to("loop.md")
    (docs / "sub/up").symlink_to(docs, target_is_directory=True)
    (outside / "back").symlink_to(docs, target_is_directory=True)
    return docs


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links need rights there")
def test_links_out_of_the_folder_are_skipped_and_counted(tmp_path: Path) -> None:
    """Whoever may write a link into a folder could otherwise have any file read; those inside are fine."""
    found = discover([folders(tmp_path)], tmp_path, is_read)
    assert [file.source for file in found.files] == ["docs/inside.md", "docs/sub/a.md"]
    assert found.skipped_links == 3


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links need rights there")
def test_links_are_followed_on_demand_and_circles_end(tmp_path: Path) -> None:
    """Each folder is walked once, wherever the links to it are; devices never are files."""
    found = discover([folders(tmp_path)], tmp_path, is_read, follow_links=True)
    assert [file.source for file in found.files] == [
        "docs/folder/secret.md",
        "docs/inside.md",
        "docs/leak.md",
        "docs/sub/a.md",
    ]
    assert found.skipped_links == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="links need rights there")
def test_a_folder_that_is_a_link_itself_is_walked(tmp_path: Path) -> None:
    """Who names a link wants what is behind it; what lies there is inside."""
    folders(tmp_path)
    (tmp_path / "link").symlink_to("docs", target_is_directory=True)
    found = discover([tmp_path / "link"], tmp_path, is_read)
    assert [file.source for file in found.files] == ["link/inside.md", "link/sub/a.md"]


@given(st.lists(st.sampled_from(LINES), max_size=40).map("\n".join), st.integers(1, 7))
def test_blocks_are_the_same_however_many_lines_are_parsed_at_once(text: str, window: int) -> None:
    """A document is parsed a stretch at a time, so that what the parser makes of it is never all in memory."""
    assert parse_markdown(text, window=window) == parse_markdown(text)


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called, those of C included."""
    seen = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal seen
        seen += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return seen


@pytest.mark.parametrize("text", ["|a|\n|-|\n|b|\n\n", "- a\n\nb\n\n", "# a\n\nb\n\n", "- a\n", "a\n", "[a]: b\n"])
def test_blocks_cost_the_same_however_long_the_document_is(text: str) -> None:
    """Twice the tables, lists or lines are about twice the calls; ``benchmarks/long_files.py`` shows the seconds."""
    parse_markdown(text)
    once, twice = (calls(partial(parse_markdown, text * n, window=50)) for n in (500, 1_000))
    assert twice < 2.2 * once


def counted(text: str) -> int:
    """Return how many characters are given to the token counter while a text is split."""
    seen = 0

    def count(part: str) -> int:
        nonlocal seen
        seen += len(part)
        return (len(part) + 3) // 4

    document = Document(id="d", text=text, source="d", content_hash="x")
    split_document(ParsedDocument(text, "markdown"), document, ChunkSizes(450, 64, window=512), count)
    return seen


@pytest.mark.parametrize(
    "unit",
    [
        "# Heading\n\nsome text\n\n",
        "# Heading\n",
        "word " * 10,
        "x" * 20,
        "A sentence. ",
        "- item\n",
        "|a|b|\n",
        "a\u0301" * 9,
    ],
)
def test_counting_tokens_grows_with_the_text_and_not_with_its_square(unit: str) -> None:
    """Twice the headings, or a paragraph twice as long, cost at most about twice as much."""
    assert counted(unit * 4_000) < 3 * counted(unit * 2_000)


def test_deep_metadata_that_is_fine_stays(tmp_path: Path) -> None:
    """A dozen levels are no attack."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a", "deep": [[[[[[[[[[1]]]]]]]]]]}))
    (document,) = read_file(path)
    assert document.metadata["deep"] == [[[[[[[[[[1]]]]]]]]]]
