"""PDF: the text of its pages, in the order in which it was written."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.markdown import first_heading
from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.base import author_metadata, clean, unreadable, vendor
from retrieval_core.ingest.readers.pdf_layout import markdown_pages
from retrieval_core.ingest.readers.pdf_lines import lines_of_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions
    from retrieval_core.ingest.readers.pdf_lines import Line

# PDFium is not thread-safe: one call at a time in a process, whatever the document.
_PDFIUM = threading.Lock()
_PLACEHOLDER_TITLES = ("untitled", "microsoft word -", "microsoft powerpoint -", "slide 1", "powerpoint presentation")


def read_pdf(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a PDF with its page numbers; an owner password does not keep it from being read.

    Headings are found by their size and weight, so that the text is Markdown. Running heads and page numbers are left
    out, and words that were hyphenated at line ends are whole again where the rest of the document tells how.
    """
    with vendor(path, "Reading PDF files", "it is no PDF, or is damaged or incomplete"), _PDFIUM:
        pages, about = _read(path)
    if not any(pages):
        raise unreadable(path, "its pages hold no text (a scan?); run text recognition (OCR) on it first")
    text, spans = markdown_pages(pages)
    title = " ".join(clean(about.get("Title", "")).split())
    yield ParsedDocument(
        text=text,
        markup="markdown",
        title=first_heading(text) if not title or title.lower().startswith(_PLACEHOLDER_TITLES) else title,
        pages=spans,
        metadata=author_metadata(about.get("Author")),
    )


def _read(path: Path) -> tuple[list[list[Line]], dict[str, str]]:
    import pypdfium2  # noqa: PLC0415 - an extra

    raw: Any = pypdfium2.raw
    try:
        document: Any = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as exc:
        if cast("Any", exc).err_code == raw.FPDF_ERR_PASSWORD:
            raise unreadable(path, "it is protected by a password") from exc
        raise
    with closing(document):
        pages: list[list[Line]] = []
        for number in range(len(document)):
            with closing(document[number]) as page, closing(page.get_textpage()) as text_page:
                pages.append(lines_of_page(raw, text_page, page.get_height()))
        return pages, document.get_metadata_dict()
