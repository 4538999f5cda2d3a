"""Long Word documents, books and presentations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import UnreadableFileError
from retrieval_core.ingest.readers import read_file
from support.bombs import book, deck, word, zipped

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

COUNT = 9_000
"""Paragraphs of some hundred pages."""
NUMBERED = "<w:pPr><w:numPr/></w:pPr>"


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p>{properties}<w:r w:a='1' w:b='2'><w:t>{text}</w:t></w:r></w:p>"


def text_of(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    (document,) = read_file(path)
    return document.text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_long_word_document_is_read_whole(tmp_path: Path, encoding: str) -> None:
    """Its texts are those of its paragraphs, in order."""
    expected = [f"paragraph {at} \N{GRINNING FACE}" for at in range(COUNT)]
    xml = f'<?xml version="1.0" encoding="{encoding}"?>{word("".join(map(paragraph, expected)))["word/document.xml"]}'
    parts = {"word/document.xml": xml.encode(encoding)}
    assert text_of(tmp_path / "a.docx", zipped(parts)).split("\n\n") == expected


def test_a_paragraph_whose_end_was_deleted_stays_with_the_next(tmp_path: Path) -> None:
    """Neither is lost."""
    deleted = "<w:pPr><w:rPr><w:del/></w:rPr></w:pPr>"
    expected = [f"text {at}" for at in range(COUNT // 2)]
    body = "".join(paragraph(f"{text[:4]}", deleted) + paragraph(text[4:]) for text in expected)
    assert text_of(tmp_path / "a.docx", zipped(word(body))).split("\n\n") == expected


def test_a_note_is_written_once_in_a_long_document(tmp_path: Path) -> None:
    """References to one note do not make copies of it."""
    reference = '<w:p><w:r><w:t>see</w:t><w:footnoteReference w:id="2"/></w:r></w:p>'
    note = word("")["word/document.xml"].replace("document>", "footnotes>").replace("<w:document", "<w:footnotes")
    note = note.replace("<w:body></w:body>", f'<w:footnote w:id="2">{paragraph("the note")}</w:footnote>')
    parts = word(reference * COUNT, footnotes=note)
    assert text_of(tmp_path / "a.docx", zipped(parts)).count("the note") == 1


def test_the_part_that_holds_the_text_may_have_any_name(tmp_path: Path) -> None:
    """Relationships tell which it is."""
    parts = word(paragraph("hello"))
    parts["word/other.xml"] = parts.pop("word/document.xml")
    parts["_rels/.rels"] = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
        'Target="/word/other.xml"/></Relationships>'
    )
    assert text_of(tmp_path / "a.docx", zipped(parts)) == "hello"


def test_a_document_that_is_too_large_is_refused_with_advice(tmp_path: Path) -> None:
    """The error says what to do."""
    path = tmp_path / "a.docx"
    cell = f"<w:tc>{paragraph(chr(97))}</w:tc>"
    cells = f"<w:tr>{cell * 100}</w:tr>" * 600  # more than is parsed at once
    filler = f"<!-- {' '.join(str(number**3) for number in range(60_000))} -->"
    path.write_bytes(zipped(word(f"<w:tbl>{cells}</w:tbl>{filler}")))
    with pytest.raises(UnreadableFileError, match=r"word/document.xml has more .* at once; split it, or save it as"):
        list(read_file(path))


@pytest.mark.parametrize("depth", [300, 5_000])
def test_deep_nesting_is_told_as_what_it_is(tmp_path: Path, depth: int) -> None:
    """The library that converts Word documents gives up; the file is not damaged."""
    path = tmp_path / "a.docx"
    start, end = "<w:tbl><w:tr><w:tc>", "</w:tc></w:tr></w:tbl>"
    path.write_bytes(zipped(word(start * depth + paragraph("deep") + end * depth)))
    with pytest.raises(UnreadableFileError, match="nested too deeply"):
        list(read_file(path))


def test_a_long_book_is_read_a_page_at_a_time(tmp_path: Path) -> None:
    """What bounds a page does not bound the book."""
    pages = {f"p{at}": "".join(f"<p>page {at}, {number}</p>" for number in range(2_000)) for at in range(60)}
    text = text_of(tmp_path / "a.epub", zipped(book(pages, list(pages))))
    assert len(text.split("\n\n")) == 120_000


def test_a_long_presentation_is_read(tmp_path: Path) -> None:
    """Three hundred thousand elements are no attack."""

    def long(parts: dict[str, bytes]) -> None:
        name, end = "ppt/slides/slide1.xml", b"MARK</a:t></a:r></a:p>"
        assert end in parts[name]
        parts[name] = parts[name].replace(end, end + b"<a:p><a:r><a:t>a</a:t></a:r></a:p>" * 10_000)
        parts["ppt/other.xml"] = b"<x>" + b"<y/>" * 210_000 + b"</x>"

    assert text_of(tmp_path / "a.pptx", deck(long)).count("- a") == 10_000
