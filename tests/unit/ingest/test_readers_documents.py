"""HTML, DOCX, PPTX, EPUB and XLSX."""

from __future__ import annotations

import re
import sys
from base64 import b64decode
from datetime import date
from io import BytesIO
from typing import TYPE_CHECKING, Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from docx import Document as WordDocument
from openpyxl import Workbook
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from retrieval_core.errors import MissingExtraError, UnreadableFileError
from retrieval_core.ingest.isolated import read_isolated
from retrieval_core.ingest.readers import read_file
from retrieval_core.ingest.readers.base import ReadOptions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ParsedDocument
    from retrieval_core.ingest.report import Note

PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
HTML = """<!doctype html><html><head><title>Rolling back | Docs</title><meta name="author" content="Ada">
<script>alert("no")</script><style>p{}</style></head><body>
<a class="skip-link" href="#main">Skip to content</a><nav><a href="/">Home</a></nav>
<main><h1>Rolling back</h1><p>Use <a href="http://example.com/x">the <b>rollback</b></a> command.</p>
<ul><li>first</li><li>second</li></ul>
<pre><code class="language-sh"># not a heading
argocd app rollback</code></pre>
<table><tr><th>Name</th><th>Value</th></tr><tr><td>a|b</td><td>1</td></tr></table>
<p># not a heading either</p><img src="http://example.com/pixel.png" alt=""></main>
<footer>All rights reserved</footer><script src="http://example.com/x.js"></script></body></html>"""

HTML_TEXT = """# Rolling back

Use the **rollback** command.

- first
- second

```sh
# not a heading
argocd app rollback
```

| Name | Value |
| --- | --- |
| a\\|b | 1 |

\\# not a heading either"""


def read(path: Path) -> ParsedDocument:
    (document,) = read_file(path)
    return document


def reason(path: Path) -> str:
    with pytest.raises(UnreadableFileError) as caught:
        read(path)
    return caught.value.reason


def zipped(path: Path, members: dict[str, str]) -> Path:
    with ZipFile(path, "w", ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_html_becomes_markdown_without_navigation_and_scripts(tmp_path: Path) -> None:
    """Headings, lists, code and tables stay; the site's name leaves the title."""
    path = tmp_path / "a.html"
    path.write_text(HTML, encoding="utf-8")
    document = read(path)
    assert document.text == HTML_TEXT
    assert (document.title, document.markup, document.metadata) == ("Rolling back", "markdown", {"author": "Ada"})


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("", "utf-8"),
        ("", "utf-16"),
        ("", "cp1252"),
        ('<meta charset="iso-8859-2">', "iso-8859-2"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">', "cp1251"),
        ('<meta charset="no-such-encoding">', "cp1252"),
        ('<meta charset="rot13">', "cp1252"),
    ],
)
def test_html_encodings(tmp_path: Path, head: str, encoding: str) -> None:
    """A mark or UTF-8, then the declaration, then the detector."""
    words = {"cp1251": "Привет, мир", "iso-8859-2": "Zażółć gęślą jaźń"}.get(
        encoding, "Où est la bibliothèque ? Déjà vu, très sucré"
    )
    path = tmp_path / "a.htm"
    path.write_bytes(f"<html><head>{head}<title>t</title></head><body><p>{words}</p></body></html>".encode(encoding))
    assert read(path).text == words
    assert read(path).title == "t"


def test_html_without_text(tmp_path: Path) -> None:
    """A page made of scripts alone holds nothing to find."""
    path = tmp_path / "a.html"
    path.write_text("<html><body><script>app()</script></body></html>")
    assert reason(path) == "it contains no text"


def test_html_nested_without_end_does_not_crash(tmp_path: Path) -> None:
    """Depth is bounded."""
    path = tmp_path / "a.html"
    path.write_text("<p>before</p>" + "<div>" * 50_000 + "deep")
    assert "before" in read(path).text


def word(path: Path, title: str = "") -> Path:
    document = WordDocument()
    document.core_properties.title = title
    document.core_properties.author = "Ada"
    document.add_heading("Handbook", level=0)
    document.add_heading("Install", level=1)
    document.add_paragraph("Run the installer.")
    document.add_paragraph("one", style="List Bullet")
    document.add_paragraph("two", style="List Bullet")
    document.add_picture(BytesIO(PIXEL))
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip((cell for row in table.rows for cell in row.cells), ("Key", "Value", "a", "1"), strict=True):
        cell.text = text
    document.save(str(path))
    return path


def test_docx(tmp_path: Path) -> None:
    """Styles become headings and lists, tables stay tables."""
    document = read(word(tmp_path / "a.docx"))
    assert document.text == (
        "# Handbook\n\n# Install\n\nRun the installer.\n\n- one\n- two\n\n| Key | Value |\n| --- | --- |\n| a | 1 |"
    )
    assert (document.title, document.metadata) == ("Handbook", {"author": "Ada"})
    assert read(word(tmp_path / "b.docx", title=" The  handbook ")).title == "The handbook"


def presentation(path: Path, *, empty: bool = False) -> Path:
    deck: Any = Presentation()
    title_only = deck.slide_layouts[5]
    if empty:
        deck.slides.add_slide(deck.slide_layouts[6])
        deck.save(str(path))
        return path
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Tides"
    frame = first.placeholders[1].text_frame
    frame.text = "They rise"
    paragraph = frame.add_paragraph()
    paragraph.text, paragraph.level = "and fall", 1
    first.notes_slide.notes_text_frame.text = "Mention the moon"
    deck.slides.add_slide(deck.slide_layouts[6])
    third = deck.slides.add_slide(title_only)
    third.shapes.title.text = "Numbers"
    table = third.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for at, text in enumerate(("Place", "Metres", "a|b", "3")):
        table.cell(at // 2, at % 2).text = text
    group = third.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 100, 100).text_frame.text = "in a group"
    data: Any = CategoryChartData()
    data.categories = ["x"]
    data.add_series("s", (1,))
    chart = third.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 100, 100, data).chart
    chart.chart_title.text_frame.text = "A chart"
    deck.save(str(path))
    return path


def test_pptx(tmp_path: Path) -> None:
    """A slide is a page under its title; a slide without text keeps its number."""
    document = read(presentation(tmp_path / "a.pptx"))
    assert document.text == (
        "# Tides\n\n- They rise\n  - and fall\n\nNotes: Mention the moon\n\n"
        "# Numbers\n\n| Place | Metres |\n| --- | --- |\n| a\\|b | 3 |\n\nin a group\n\nA chart"
    )
    assert document.title == "Tides"
    assert [page.number for page in document.pages] == [1, 3]
    assert document.text[slice(document.pages[1].span.start, document.pages[1].span.start + 9)] == "# Numbers"
    assert reason(presentation(tmp_path / "b.pptx", empty=True)) == "its slides contain no text"


CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:title>The  Sea</dc:title><dc:creator>Ada</dc:creator></metadata>
<manifest><item id="two" href="two%20b.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="text/one.xhtml" media-type="application/xhtml+xml"/>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="cover" href="cover.png" media-type="image/png"/></manifest>
<spine><itemref idref="cover"/><itemref idref="nav"/><itemref idref="one"/><itemref idref="two"/></spine></package>"""
BOOK = {
    "META-INF/container.xml": CONTAINER,
    "OEBPS/book.opf": PACKAGE,
    "OEBPS/text/one.xhtml": "<!DOCTYPE html><html><body><h1>Chapter 1</h1><p>Waves.</p></body></html>",
    "OEBPS/two b.xhtml": "<html><body><h1>Chapter 2</h1><p>Wind.</p></body></html>",
    "OEBPS/nav.xhtml": "<html><body><ol><li>Contents</li></ol></body></html>",
}


def book(path: Path) -> Path:
    return zipped(path, BOOK)


def test_epub(tmp_path: Path) -> None:
    """Chapters come in the order of the spine, without the table of contents."""
    document = read(book(tmp_path / "a.epub"))
    assert document.text == "# Chapter 1\n\nWaves.\n\n# Chapter 2\n\nWind."
    assert (document.title, document.metadata, document.pages) == ("The Sea", {"author": "Ada"}, ())


@pytest.mark.parametrize(
    "broken", [{"META-INF/container.xml": "<container/>"}, {"OEBPS/book.opf": "<package"}, {"x": ""}]
)
def test_a_broken_epub_is_reported(tmp_path: Path, broken: dict[str, str]) -> None:
    """A package without its parts is no book."""
    members = broken if "x" in broken else {**BOOK, **broken}
    assert reason(zipped(tmp_path / "a.epub", members)) == "it is no EPUB, or is damaged"


def workbook(path: Path, **sheets: Sequence[Sequence[object]]) -> Path:
    book: Any = Workbook()
    book.remove(book.active)
    for name, rows in (sheets or {"Tides": [["Place", "Metres"], ["Brest", 3]]}).items():
        sheet = book.create_sheet(name.replace("_", " "))
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_sheets_are_sections_and_pages(tmp_path: Path) -> None:
    """Values as people read them, without blank rows and columns; a long table has its header again and again."""
    prices = [["Item", None, "Since", "Sold"], [], ["a|b", 1.50, date(2026, 1, 2), True]]
    long = [["Number", "Word"], *([number, "word"] for number in range(100))]
    document = read(workbook(tmp_path / "a.xlsx", Prices=prices, Empty=[], Long_one=long))
    assert document.text.startswith(
        "# Prices\n\n| Item |  | Since | Sold |\n| --- | --- | --- | --- |\n| a\\|b | 1.5 | 2026-01-02 | true |\n\n"
    )
    assert document.text.count("| Number | Word |") == 2
    assert all(f"\n| {number} | word |" in document.text for number in range(100))
    assert [(page.number, document.text[page.span.start :][:5]) for page in document.pages] == [
        (1, "# Pri"),
        (3, "# Lon"),
    ]


def test_a_sheet_with_a_text_column_is_read_like_a_csv_file(tmp_path: Path) -> None:
    """Its rows are known by their numbers in the sheet."""
    rows: list[list[object]] = [["Name", "Text", "Code", "Price"], ["A", "one", "007", 1.5], [], ["B", "two", "008", 2]]
    path = workbook(tmp_path / "a.xlsx", Data=rows, Empty=[])
    assert [(each.row, each.title, each.text, each.metadata) for each in read_file(path)] == [
        (2, "A", "one", {"Name": "A", "Code": "007", "Price": 1.5}),
        (4, "B", "two", {"Name": "B", "Code": "008", "Price": 2}),
    ]
    assert list(read_isolated(path)) == list(read_file(path))
    assert read(workbook(tmp_path / "b.xlsx", Data=rows, More=rows)).text.startswith("# Data\n\n| Name | Text |")


def test_formulas_without_a_result_are_noted(tmp_path: Path) -> None:
    """A program that doesn't compute them stores none. An empty text is a result."""
    path = workbook(tmp_path / "a.xlsx", Sums=[["Month", "Sum"], ["May", "=1+2"], ["June", "=2+2"]], More=[["=A1", 5]])
    notes: list[Note] = []
    (document,) = read_file(path, ReadOptions(on_note=notes.append))
    assert "| May |  |" in document.text
    assert [each.message.partition(".")[0] for each in notes] == ["3 formulas without a stored result became empty"]
    with ZipFile(path) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    for sheet in ("xl/worksheets/sheet1.xml", "xl/worksheets/sheet2.xml"):
        parts[sheet] = re.sub(r"(</f>)<v ?(?:/|></v)>", r"\1<v>3</v>", parts[sheet])
        parts[sheet] = parts[sheet].replace(
            "</worksheet>", '<extLst><ext uri="x" xmlns:xm="x"><xm:f>A1</xm:f></ext></extLst></worksheet>'
        )
        parts[sheet] = re.sub(r'<c r="B3"><f>2\+2</f><v>3</v>', '<c r="B3" t="str"><f>2+2</f><v></v>', parts[sheet])
    notes.clear()
    (document,) = read_file(zipped(tmp_path / "b.xlsx", parts), ReadOptions(on_note=notes.append))
    assert "| May | 3 |\n| June |  |" in document.text
    assert notes == []


@pytest.mark.parametrize("suffix", [".docx", ".pptx", ".epub", ".xlsx"])
def test_damaged_archives_are_reported(tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Truncated, of another format, encrypted: each has its reason, and nothing is printed."""
    make = {".docx": word, ".pptx": presentation, ".epub": book, ".xlsx": workbook}[suffix]
    content = make(tmp_path / f"whole{suffix}").read_bytes()
    cut = tmp_path / f"cut{suffix}"
    cut.write_bytes(content[: len(content) // 2])
    assert reason(cut) == "it is damaged or incomplete"
    cut.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(2000))
    assert reason(cut) == "it is protected by a password, or of an older format"
    other = zipped(tmp_path / f"other{suffix}", {"readme.txt": "hello"})
    assert reason(other).startswith("it is no ")
    locked = bytearray(other.read_bytes())
    locked[locked.index(b"PK\x01\x02") + 8] |= 1
    other.write_bytes(locked)
    assert reason(other) == "it is encrypted"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("suffix", [".docx", ".pptx", ".epub", ".xlsx"])
def test_archives_that_unpack_to_too_much_are_refused(tmp_path: Path, suffix: str) -> None:
    """A file of a few kilobytes holds no two megabytes of markup."""
    bomb = zipped(tmp_path / f"bomb{suffix}", {**BOOK, "OEBPS/text/one.xhtml": "<" + " " * 3_000_000})
    assert "it unpacks to more than" in reason(bomb)


ENTITIES = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><x>&b;</x>'


@pytest.mark.parametrize(
    ("suffix", "part", "expected"),
    [
        (".docx", "word/document.xml", "declares entities"),
        (".pptx", "ppt/presentation.xml", "declares entities"),
        (".xlsx", "xl/workbook.xml", "declares entities"),
        (".epub", "OEBPS/book.opf", "it is no EPUB, or is damaged"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_never_expanded(tmp_path: Path, suffix: str, part: str, expected: str, encoding: str) -> None:
    """Neither those that grow nor those that name other files."""
    path = tmp_path / f"bomb{suffix}"
    with ZipFile(path, "w") as file:
        if suffix == ".epub":
            file.writestr("META-INF/container.xml", CONTAINER)
        file.writestr(part, ENTITIES.encode(encoding))
    assert expected in reason(path)


@pytest.mark.parametrize(
    ("suffix", "module"),
    [
        (".html", "html_to_markdown"),
        (".docx", "mammoth"),
        (".pptx", "pptx"),
        (".epub", "html_to_markdown"),
        (".xlsx", "openpyxl"),
    ],
)
def test_missing_extra(tmp_path: Path, suffix: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each format names itself and the command that installs what it needs."""
    path = tmp_path / f"a{suffix}"
    if suffix == ".html":
        path.write_text(HTML)
    else:
        {".docx": word, ".pptx": presentation, ".epub": book, ".xlsx": workbook}[suffix](path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"Reading {suffix[1:].upper()} files .*\[documents\]"):
        read(path)
