"""Where passages stand on the pages of their PDF, and the pictures of these."""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pypdfium2")
pytest.importorskip("PIL")
pytest.importorskip("pypdf")
pytest.importorskip("reportlab")

import pypdfium2
from PIL import Image, ImageChops
from pypdf import PdfReader, PdfWriter
from pypdf.generic import RectangleObject
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Frame, PageTemplate, Paragraph

from retrieval_core import open_index
from retrieval_core.config import RetrievalConfig
from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core.ingest.readers.pdf_places import (
    MOST_PIXELS,
    PlaceOnPage,
    picture_of_page,
    place_on_page,
    places_of_words,
)
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk, PageSpan

if TYPE_CHECKING:
    from pathlib import Path

WORD = re.compile(r"[^\W_]+")


def letters(text: str) -> str:
    return "".join(WORD.findall(text))


def inside(file: bytes, place: PlaceOnPage) -> str:
    """Return the words of a page that lie in the boxes, as PDFium reads them."""
    page: Any = pypdfium2.PdfDocument(file)[place.page - 1]
    text_page = page.get_textpage()
    return " ".join(
        text_page.get_text_bounded(left - 0.5, place.height - bottom - 0.5, right + 0.5, place.height - top + 0.5)
        for left, top, right, bottom in place.boxes
    )


def columns(path: Path) -> Path:
    """Write a text in two columns and on several pages, with headings and a running head on each page."""
    styles = getSampleStyleSheet()
    width, height = A4
    frames = [Frame(left, 60, width / 2 - 60, height - 140) for left in (50, width / 2 + 10)]

    def head(canvas: Canvas, _document: BaseDocTemplate) -> None:
        canvas.drawString(50, height - 30, f"The book of the tides {canvas.getPageNumber()}")

    document = BaseDocTemplate(str(path), pagesize=A4)
    document.addPageTemplates([PageTemplate(frames=frames, onPage=head)])
    story: list[Any] = [
        part
        for number in range(1, 40)
        for part in (
            Paragraph(f"Chapter {number}", styles["Heading2"]),
            *(
                Paragraph(f"Tide {number} of day {day} rose {number * day} feet. " * 4, styles["BodyText"])
                for day in (1, 2)
            ),
        )
    ]
    document.build(story)
    return path


def test_the_words_in_the_boxes_are_those_of_the_passage(tmp_path: Path) -> None:
    """Of every passage of a document, as they are indexed."""
    file = columns(tmp_path / "tides.pdf").read_bytes()
    with open_index(config=RetrievalConfig(index=str(tmp_path / "index.db")), embedder=FakeEmbedder()) as index:
        assert not index.ingest(tmp_path / "tides.pdf").failed
        found = index.sync.run(index.store.fetch(FetchRequest(ranges=(ChunkRange.whole("tides.pdf"),))))
        assert len(found.chunks) > 10
        for chunk in found.chunks.values():
            assert chunk.page_span is not None
            place = index.place_on_page(chunk)
            assert (place.page, place.pages) == (chunk.page_span.first, 4)
            assert (place.width, place.height) == pytest.approx(A4, abs=0.1)
            assert letters(inside(file, place)) == letters(chunk.text)


def test_a_passage_is_shown_on_each_of_its_pages(tmp_path: Path) -> None:
    """And on no other."""
    canvas = Canvas(str(tmp_path / "tides.pdf"), pagesize=(400, 300))
    for text in ("The tide comes in the morning.", "It goes at noon of each day.", "It comes again at night."):
        canvas.drawString(50, 200, text)
        canvas.showPage()
    canvas.save()
    file = (tmp_path / "tides.pdf").read_bytes()
    with open_index(config=RetrievalConfig(index=str(tmp_path / "index.db")), embedder=FakeEmbedder()) as index:
        index.ingest(tmp_path / "tides.pdf")
        found = index.sync.run(index.store.fetch(FetchRequest(ranges=(ChunkRange.whole("tides.pdf"),))))
        (chunk,) = found.chunks.values()
        assert chunk.page_span == PageSpan(1, 3)
        places = [index.place_on_page(chunk, page) for page in (1, 2, 3)]
        assert [place.page for place in places] == [1, 2, 3]
        assert letters("".join(inside(file, place) for place in places)) == letters(chunk.text)
        assert index.place_on_page(chunk) == places[0]
        pictures = {index.picture_of_page(chunk, 100, page) for page in (1, 2, 3)}
        assert len(pictures) == 3
        with pytest.raises(InvalidParameterError, match="page must be one of the passage, from 1 to 3, got 4"):
            index.place_on_page(chunk, 4)


def test_of_a_passage_on_two_pages_those_of_the_page_are_found(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"))
    lines = ["The moon pulls at the water of the oceans and", "the water follows it. The earth turns below the moon."]
    for line in lines:
        canvas.drawString(72, 700, line)
        canvas.drawString(72, 30, "The book of the moon and the earth")
        canvas.showPage()
    canvas.save()
    file = (tmp_path / "a.pdf").read_bytes()
    for number, line in enumerate(lines, 1):
        place = place_on_page(file, tmp_path / "a.pdf", number, "\n".join(lines))
        assert letters(inside(file, place)) == letters(line)


def test_words_that_the_reader_joined_are_found() -> None:
    """The text of the page has other divisions, and a running head within the passage."""
    page = "about\nthe Lucene\nBM25 index and its\nThe Book 12\nwords in the examples that follow\n"
    parts = places_of_words(page, "the Lucene-BM25 index and its words in the examples")
    assert [page[start:end] for start, end in parts] == [
        "the Lucene\nBM25 index and its",
        "words in the examples",
    ]
    assert places_of_words("This is it, is it", "is it") == [(5, 10)]
    assert places_of_words("Nothing of that", "else") == []
    assert places_of_words("", "else") == []
    assert places_of_words("words", "...") == []


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("cropped", [False, True])
def test_boxes_are_where_the_picture_has_the_words(tmp_path: Path, rotation: int, cropped: bool) -> None:
    """The only dark pixels of a page lie in the box, however the page is turned and cropped."""
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(400, 300))
    canvas.setFont("Helvetica", 20)
    canvas.drawString(120, 200, "HIGH TIDES")
    canvas.save()
    writer = PdfWriter(PdfReader(tmp_path / "a.pdf"))
    writer.pages[0].rotate(rotation)
    if cropped:
        writer.pages[0].cropbox = RectangleObject((100, 150, 380, 290))
    written = BytesIO()
    writer.write(written)
    file = written.getvalue()
    place = place_on_page(file, tmp_path / "a.pdf", 1, "high tides".upper())
    (box,) = place.boxes
    wide, high = (280, 140) if cropped else (400, 300)
    assert (place.width, place.height) == ((wide, high) if rotation in {0, 180} else (high, wide))
    picture = Image.open(BytesIO(picture_of_page(file, tmp_path / "a.pdf", 1, 800))).convert("L")
    assert picture.width == 800
    dark = ImageChops.invert(picture).point([0] * 129 + [255] * 127).getbbox()
    assert dark == pytest.approx([side * 800 / place.width for side in box], abs=5)


def test_a_picture_has_a_bounded_number_of_pixels(tmp_path: Path) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(20, 10_000))
    canvas.drawString(1, 5_000, "a long page")
    canvas.save()
    file = (tmp_path / "a.pdf").read_bytes()
    picture = Image.open(BytesIO(picture_of_page(file, tmp_path / "a.pdf", 1, 2_000)))
    assert MOST_PIXELS * 0.9 < picture.width * picture.height < MOST_PIXELS * 1.1


def test_only_pages_of_the_indexed_file_are_shown(tmp_path: Path) -> None:
    """Not of a file that is gone or changed, nor one that a passage names as its source without being read from it."""
    folder = tmp_path / "files"
    folder.mkdir()
    path = columns(folder / "tides.pdf")
    secret = columns(tmp_path / "secret.pdf")
    with open_index(config=RetrievalConfig(index=str(folder / "index.db")), embedder=FakeEmbedder()) as index:
        index.ingest(folder)
        chunk = index.sync.run(index.store.fetch(FetchRequest(chunk_ids=("tides.pdf#0",)))).chunks["tides.pdf#0"]
        assert index.picture_of_page(chunk, 100).startswith(b"\x89PNG")
        with pytest.raises(InvalidParameterError, match="width must be"):
            index.picture_of_page(chunk, 0)
        for named in ("../secret.pdf", str(secret), "tides.md"):
            foreign = Chunk("x", named, "Tide", source=named, page_span=PageSpan(1, 1))
            with pytest.raises(UnreadableFileError, match="no page of a PDF file that was indexed"):
                index.place_on_page(foreign)
        behind = Chunk("x", "tides.pdf", "Tide", source="tides.pdf", page_span=PageSpan(5, 5))
        with pytest.raises(UnreadableFileError, match="it has no page 5"):
            index.place_on_page(behind)
        path.write_bytes(secret.read_bytes() + b"\n")
        with pytest.raises(UnreadableFileError, match="was changed after it was indexed"):
            index.picture_of_page(chunk)
        path.unlink()
        with pytest.raises(UnreadableFileError, match="is gone"):
            index.place_on_page(chunk)
