"""PDF: pages, headings, paragraphs, hyphens, letters that run from right to left, and what cannot be read."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pypdf import PdfReader, PdfWriter
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from retrieval_core.errors import MissingExtraError, UnreadableFileError
from retrieval_core.ingest.readers import read_file
from retrieval_core.ingest.readers.pdf import Line, lines_of_page, markdown_pages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ParsedDocument

BODY = ("Helvetica", 10)
HEADING = ("Helvetica-Bold", 16)
WIDTH, HEIGHT = A4


def pdf(path: Path, pages: Sequence[Sequence[tuple[str, tuple[str, int], float]]], **about: str) -> Path:
    """Write pages of lines, each with its font and its distance from the top."""
    canvas = Canvas(str(path), pagesize=A4)
    canvas.setTitle(about.get("title", ""))
    canvas.setAuthor(about.get("author", ""))
    for page in pages:
        for text, font, top in page:
            canvas.setFont(*font)
            canvas.drawString(72, HEIGHT - top, text)
        canvas.showPage()
    canvas.save()
    return path


def read(path: Path) -> ParsedDocument:
    (document,) = read_file(path)
    return document


def reason(path: Path) -> str:
    with pytest.raises(UnreadableFileError) as caught:
        read(path)
    return caught.value.reason


def test_pages_headings_and_paragraphs(tmp_path: Path) -> None:
    """Larger type makes headings, gaps make paragraphs, and every page keeps its number."""
    path = pdf(
        tmp_path / "a.pdf",
        [
            [
                ("Tides of the sea", ("Helvetica-Bold", 20), 100),
                ("The moon pulls at the water of the oceans, and", BODY, 140),
                ("the water follows it around the whole earth.", BODY, 152),
                ("A second paragraph stands further down the page.", BODY, 190),
            ],
            [],
            [
                ("Spring tides", HEADING, 100),
                ("They come when sun and moon pull in one line.", BODY, 130),
                ("# no heading | - but a text that looks like one", BODY, 142),
            ],
        ],
        author="Ada",
    )
    document = read(path)
    assert document.text == (
        "# Tides of the sea\n\n"
        "The moon pulls at the water of the oceans, and\nthe water follows it around the whole earth.\n\n"
        "A second paragraph stands further down the page.\n\n"
        "## Spring tides\n\n"
        "They come when sun and moon pull in one line.\n\\# no heading | - but a text that looks like one"
    )
    assert document.title == "Tides of the sea"
    assert document.metadata == {"author": "Ada"}
    assert [page.number for page in document.pages] == [1, 3]
    assert [document.text[page.span.start : page.span.end][:8] for page in document.pages] == ["# Tides ", "## Sprin"]


@pytest.mark.parametrize(("title", "expected"), [("Tidal tables", "Tidal tables"), ("untitled", None)])
def test_title_of_the_file(tmp_path: Path, title: str, expected: str | None) -> None:
    """A file's own title counts unless a program made it up."""
    assert read(pdf(tmp_path / "a.pdf", [[("Just a line of text.", BODY, 400)]], title=title)).title == expected


def test_running_heads_are_left_out_and_sentences_cross_pages(tmp_path: Path) -> None:
    """What repeats at the edge of pages is no text, and a sentence that goes on is one paragraph."""
    pages = [
        [
            ("Annual report 2024", BODY, 30),
            (f"Chapter text number {word} goes on and", BODY, 300),
            (f"Page {page}", BODY, 820),
        ]
        for page, word in enumerate(("one", "two", "three"), start=1)
    ]
    pages[1][1] = ("on without an end to it", BODY, 100)
    document = read(pdf(tmp_path / "a.pdf", pages))
    assert document.text == (
        "Chapter text number one goes on and\non without an end to it\n\nChapter text number three goes on and"
    )
    assert [page.number for page in document.pages] == [1, 2, 3]


def test_owner_passwords_do_not_matter_and_user_passwords_do(tmp_path: Path) -> None:
    """A file that anyone may open is read; one that asks for a password is reported."""
    plain = pdf(tmp_path / "plain.pdf", [[("Some words to find.", BODY, 100)]])
    for name, user in (("owner.pdf", ""), ("user.pdf", "secret")):
        writer = PdfWriter(PdfReader(plain))
        writer.encrypt(user_password=user, owner_password="owner", algorithm="AES-256")
        writer.write(tmp_path / name)
    assert read(tmp_path / "owner.pdf").text == "Some words to find."
    assert reason(tmp_path / "user.pdf") == "it is protected by a password"


def test_scans_are_told_from_damaged_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each reason tells the reader what to do, and nothing else is printed."""
    assert "(OCR)" in reason(pdf(tmp_path / "scan.pdf", [[], []]))
    whole = pdf(tmp_path / "whole.pdf", [[("Words.", BODY, 100)]]).read_bytes()
    (tmp_path / "cut.pdf").write_bytes(whole[: len(whole) // 3])
    (tmp_path / "text.pdf").write_text("this is no PDF")
    for name in ("cut.pdf", "text.pdf"):
        assert reason(tmp_path / name) == "it is no PDF, or is damaged or incomplete"
    assert capfd.readouterr() == ("", "")


def test_missing_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PDFium the error names the command that installs it."""
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(MissingExtraError, match=r"Reading PDF files .*\[documents\]"):
        read(pdf(tmp_path / "a.pdf", [[("Words.", BODY, 100)]]))


def line(text: str, baseline: float, **look: Any) -> Line:
    values: dict[str, Any] = {"size": 10.0, "bold": False, "left": 50.0, "right": 300.0, "height": 800.0, **look}
    return Line(text=text, baseline=baseline, **values)


def markdown(*lines: Line) -> str:
    return markdown_pages([lines])[0]


@pytest.mark.parametrize(
    ("elsewhere", "before", "after", "joined"),
    [
        ("a suboptimal way", "it is sub", "optimal today", "it is suboptimal today"),
        ("a dual-encoder", "with a dual", "encoder model", "with a dual-encoder model"),
        ("nothing", "an exam", "ple of it", "an example of it"),
        ("nothing", "beats Lucene", "BM25 again", "beats Lucene-BM25 again"),
        ("nothing", "from 1990", "2000 on", "from 1990-2000 on"),
        ("nothing", "odd (", "?) end", "odd (-?) end"),
    ],
)
def test_hyphens_are_mended_as_the_document_writes_the_word(
    elsewhere: str, before: str, after: str, joined: str
) -> None:
    """A word that occurs whole decides; otherwise a hyphen stays before capitals and digits."""
    text = markdown(line(elsewhere, 500), line(before, 488, hyphenated=True), line(after, 476))
    assert text == f"{elsewhere}\n{joined}"
    assert markdown(line("at the very end a hy", 500, hyphenated=True)) == "at the very end a hy-"


def test_paragraphs_are_told_by_place_and_punctuation() -> None:
    """Columns, indentation, short last lines, bullets and numbers."""
    text = markdown(
        line("First line of a text", 500),
        line("that ends early.", 488, right=120.0),
        line("A new one begins", 476),
        line("with a full line.", 464),
        line("Indented it goes on", 452, left=62.0),
        line("to the bottom of the column and", 440),
        line("continues at the top of the next.", 700, left=310.0, right=560.0),
        line("• a bullet", 688, left=310.0, right=560.0),
        line("1. a number", 676, left=310.0, right=560.0),
        line("Third column", 700, left=570.0, right=700.0),
    )
    assert text == (
        "First line of a text\nthat ends early.\n\nA new one begins\nwith a full line.\n\n"
        "Indented it goes on\nto the bottom of the column and\ncontinues at the top of the next.\n\n"
        "- a bullet\n\n1. a number\n\nThird column"
    )


def test_bold_lines_are_headings_where_the_body_is_not_bold() -> None:
    """Sentences, numbers, bullets and sideways notes are none, however they look."""
    body = "a line of plain text that is long enough to be the body of this page"
    text = markdown(
        line("2 Results", 700, bold=True),
        line(body, 680),
        line("This one is a sentence.", 660, bold=True),
        line("44.9 66.8 78.1", 640, bold=True),
        line(body, 620),
        line("arXiv:1234 [cs]", 600, size=20.0, upright=False),
        line(body, 580),
        line(body, 568),
        line(body, 556),
    )
    assert [part for part in text.split("\n\n") if part.startswith("#")] == ["# 2 Results"]
    assert "#" not in markdown(line("All of it", 700, bold=True), line("is bold.", 600, bold=True))
    assert markdown_pages([]) == ("", ())


def test_a_page_of_large_type_has_no_headings() -> None:
    """Where too much of the text would be a heading, size means something else."""
    assert "#" not in markdown(
        line("Big words here", 700, size=30.0),
        line("More big words", 600, size=28.0),
        line("small words that add up", 500),
    )


class Matrix(ctypes.Structure):
    _fields_ = (("c", ctypes.c_float), ("d", ctypes.c_float))


class FakePdfium:
    """A page of characters with their boxes on one baseline, and PDFium's functions to ask about them."""

    FS_MATRIX = Matrix

    def __init__(self, characters: Sequence[tuple[str, float, float]]) -> None:
        self.characters = characters

    def count_chars(self) -> int:
        return len(self.characters)

    def FPDFText_GetUnicode(self, _page: object, index: int) -> int:  # noqa: N802
        return ord(self.characters[index][0])

    def FPDFText_GetCharBox(self, _page: object, index: int, left: Any, right: Any, *_: object) -> None:  # noqa: N802
        left._obj.value, right._obj.value = self.characters[index][1:]

    def FPDFText_GetCharOrigin(self, _page: object, _index: int, _x: Any, y: Any) -> None:  # noqa: N802
        y._obj.value = 500.0

    def FPDFText_GetMatrix(self, _page: object, _index: int, matrix: Any) -> None:  # noqa: N802
        matrix._obj.d = 2.0

    def FPDFText_GetFontSize(self, _page: object, _index: int) -> float:  # noqa: N802
        return 6.0

    def FPDFText_GetFontWeight(self, _page: object, _index: int) -> int:  # noqa: N802
        return 400

    def FPDFText_GetFontInfo(self, _page: object, _index: int, name: Any, *_: object) -> None:  # noqa: N802
        name.value = b"NimbusRomNo9L-Medi"

    def FPDFText_GetCharAngle(self, _page: object, _index: int) -> float:  # noqa: N802
        return 0.0


def test_ligatures_of_right_to_left_scripts_are_put_in_logical_order() -> None:
    """PDFium turns the letters of one glyph around with the line; their common box tells."""
    kala = [
        ("\u06a9", 40, 45),
        ("\u0627", 36, 39),
        ("\u0627", 30, 35),
        ("\u0644", 30, 35),
        (" ", 28, 30),
        ("5", 20, 25),
    ]
    fake = FakePdfium(kala)
    (found,) = lines_of_page(fake, fake, 800.0)
    assert found.text == "\u06a9\u0627\u0644\u0627 5"
    assert (found.size, found.bold, found.left, found.right) == (12.0, True, 20.0, 45.0)


def test_raised_characters_stay_in_their_line() -> None:
    """PDFium makes lines of footnote marks; a column's next line further off is one."""
    fake = FakePdfium(
        [("a", 0, 5), ("\n", 0, 0), ("1", 6, 8), ("\n", 0, 0), ("b", 14, 18), ("\n", 0, 0), ("c", 90, 95)]
    )
    assert [line.text for line in lines_of_page(fake, fake, 800.0)] == ["a1 b", "c"]
