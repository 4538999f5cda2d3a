"""Markdown and plain text, their encodings, and files that only look like text."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest.readers import read_file, supported_suffixes
from retrieval_core.ingest.readers.markup import split_front_matter
from retrieval_core.text.markdown import titled_blocks

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ParsedDocument


def read_bytes(folder: Path, name: str, content: bytes) -> ParsedDocument:
    path = folder / name
    path.write_bytes(content)
    (document,) = read_file(path)
    return document


def reason(folder: Path, name: str, content: bytes) -> str:
    with pytest.raises(UnreadableFileError) as caught:
        read_bytes(folder, name, content)
    assert caught.value.path == str(folder / name)
    return caught.value.reason


def test_front_matter_becomes_typed_metadata_and_leaves_the_text(tmp_path: Path) -> None:
    """Dates become text, everything else keeps its type, and spans point below the front matter."""
    source = (
        b"---\ntitle: Rolling back\nweight: 3\ndraft: false\nrate: 0.5\ndate: 2024-05-01\n"
        b"tags: [ops, cd]\nof: {a: 1}\nnan: .nan\n---\n# Other\n\nText.\n"
    )
    document = read_bytes(tmp_path, "a.md", source)
    assert document.title == "Rolling back"
    assert document.text == "# Other\n\nText.\n"
    assert document.markup == "markdown"
    assert document.metadata == {
        "title": "Rolling back",
        "weight": 3,
        "draft": False,
        "rate": 0.5,
        "date": "2024-05-01",
        "tags": ["ops", "cd"],
        "of": {"a": 1},
        "nan": "nan",
    }


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# One `two` **three** [four](http://x) {#anchor}\n", "One two three four"),
        ("Setext\nheading\n=======\n", "Setext heading"),
        ("```\n# no\n```\n\n## Yes\n", "Yes"),
        ("no heading\n", None),
        ("---\ntitle: ''\n---\n# Head\n", "Head"),
        ("---\n---\n# Head\n", "Head"),
    ],
)
def test_title_comes_from_the_first_heading(tmp_path: Path, text: str, title: str | None) -> None:
    """Without a title in the front matter, the first heading gives it, in plain words."""
    assert read_bytes(tmp_path, "a.markdown", text.encode()).title == title


@pytest.mark.parametrize(
    "block",
    [
        "---\nfoo: [broken\n---\nText\n",
        "---\njust words\n---\nText\n",
        "---\n- a\n- list\n---\nText\n",
        "---\nnever: closed\n",
    ],
)
def test_what_is_no_front_matter_stays_in_the_text(block: str) -> None:
    """Broken YAML, lists, and aliases that stand for endless values are left as they are."""
    assert split_front_matter(block) == ({}, block)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    """Byte order marks decide; without one it is UTF-8, or what the detector finds."""
    text = "Où est la bibliothèque ? Déjà vu : une crème brûlée, naïve et très sucrée.\n"
    assert read_bytes(tmp_path, "a.txt", text.encode(encoding)).text == text


def test_utf8_cut_in_the_middle_of_a_character_stays_utf8(tmp_path: Path) -> None:
    """Only the half character is lost."""
    assert read_bytes(tmp_path, "a.log", "größe ü".encode()[:-1]).text == "größe �"


def test_line_ends_nul_and_surrogates_are_cleaned(tmp_path: Path) -> None:
    """A store never sees carriage returns, NUL or half a surrogate pair."""
    document = read_bytes(tmp_path, "a.txt", "a\r\nb\rc\0\ud83d\ude00\ud800".encode("utf-16", "surrogatepass"))
    assert document.text == "a\nb\nc😀�"
    assert document.markup == "plain"
    assert document.title is None


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\0\0\0", bytes(range(1, 32)) * 20, b"PK\x03\x04\x14\0\x06\0"])
@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.csv", "a.jsonl", "a.html"])
def test_binary_content_with_a_text_suffix_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    """Bytes that no text has are reported as what they are."""
    assert reason(tmp_path, name, content) == "it contains binary data, not text"


def test_a_pdf_with_another_suffix_is_refused(tmp_path: Path) -> None:
    """The detector knows some formats that hold no control characters at their beginning."""
    assert reason(tmp_path, "a.txt", b"%PDF-1.4 \xe9") == "it contains binary data, not text"


@pytest.mark.parametrize("name", sorted(f"a{suffix}" for suffix in supported_suffixes()))
def test_an_empty_file_is_reported(tmp_path: Path, name: str) -> None:
    """Every format says the same of a file without a byte."""
    assert reason(tmp_path, name, b"") == "it is empty"


@pytest.mark.parametrize("name", ["a.txt", "a.md"])
def test_white_space_alone_is_no_text(tmp_path: Path, name: str) -> None:
    """A file of blank lines holds no text."""
    assert reason(tmp_path, name, b" \n\n\t") == "it contains no text"


def test_unknown_suffix_and_missing_file(tmp_path: Path) -> None:
    """Neither reaches a parser."""
    assert "'.xyz'" in reason(tmp_path, "a.xyz", b"x")
    assert reason(tmp_path, "unknown", b"x") == "it has no suffix"
    with pytest.raises(UnreadableFileError, match="cannot be opened"):
        list(read_file(tmp_path / "missing.txt"))


def test_suffixes_are_known_in_any_case(tmp_path: Path) -> None:
    """README.MD is Markdown."""
    assert read_bytes(tmp_path, "README.MD", b"# Hi").title == "Hi"


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """No input makes a text reader fail in any other way."""
    path = tmp_path_factory.getbasetemp() / "any.md"
    path.write_bytes(content)
    try:
        (document,) = read_file(path)
    except UnreadableFileError:
        return
    assert document.text.strip()


def test_importing_the_readers_loads_no_parser() -> None:
    """A vendor's library is loaded when a file of its format is read, not before."""
    code = (
        "import sys, retrieval_core.ingest.readers, retrieval_core.ingest.split;"
        "print([n for n in ('pypdfium2','mammoth','html_to_markdown','openpyxl','pptx','lxml','yaml','chardet',"
        "'markdown_it') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_titles_of_restructuredtext_and_asciidoc_are_sections(tmp_path: Path) -> None:
    """Marks have levels in the order in which they occur; tables, and rules that are too short, are no titles."""
    rst = "=====\nGuide\n=====\n\nIntro\n\nSet up\n------\nRun it.\n\nMore\n~~~~\n\n"
    rst += "A  B\n== ==\n\n== ==\nA  B\n== ==\n\nToo long\n===\n\nEnd\n---\n"
    blocks = titled_blocks(rst)
    titles = [(block.level, block.title) for block in blocks if block.kind == "heading"]
    assert titles == [(1, "Guide"), (2, "Set up"), (3, "More"), (2, "End")]
    assert "".join("".join(rst[each.span.start : each.span.end].split()) for each in blocks) == "".join(rst.split())
    (tmp_path / "a.adoc").write_text("= Guide\n\nIntro\n\n== Set up\nRun it.\n")
    (document,) = read_file(tmp_path / "a.adoc")
    assert document.title == "Guide"
    assert [block.title for block in titled_blocks(document.text)] == ["Guide", "", "Set up", ""]
