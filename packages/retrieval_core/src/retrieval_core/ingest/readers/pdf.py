"""The reader of PDF: the text of its pages, in the order of their content."""

from __future__ import annotations

import re
import threading
import zlib
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.archive import MOST_CHARACTERS
from retrieval_core.ingest.readers.base import RefusedError, author_metadata, clean, unreadable, vendor
from retrieval_core.ingest.readers.pdf_layout import markdown_pages
from retrieval_core.ingest.readers.pdf_lines import lines_of_page
from retrieval_core.text.markdown import first_heading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions
    from retrieval_core.ingest.readers.pdf_lines import Line

# PDFium is not thread-safe: one call at a time in a process, whatever the document.
PDFIUM = threading.Lock()
_STREAM = re.compile(rb"(?<!end)stream\r?\n")
_DICTIONARY = 1_000
# Fonts, tables of objects, attachments: what is kept as it is.
_NO_CONTENT = re.compile(rb"/Image|/Length[123]|/(?:Type1|CIDFontType0)C|/OpenType|/Type\s*/(?!XObject)")
_STRING = re.compile(rb"\((?:[^()\\]|\\.)*+\)|<[0-9A-Fa-f\s]*+>", re.DOTALL)
_OPERATOR = re.compile(rb"T[jJ]|['\"]|[\s\]][fFsSbB]\*?(?=\s)")
_MOST_COST = 200 << 20
_MOST_CONTENT = 16 << 20
_MOST_OTHER = 64 << 20
_MOST_IMAGE = 96 << 20
_MOST_FILTERS = 8
_PIECE = 1 << 16
_PLACEHOLDER_TITLES = ("untitled", "microsoft word -", "microsoft powerpoint -", "slide 1", "powerpoint presentation")


def read_pdf(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a PDF as Markdown with page numbers; an owner password does not keep it from being read.

    Headings are found by their size and weight. Running heads and page numbers are left out, and words that were
    hyphenated at line ends are joined as the rest of the document writes them.
    """
    with vendor(path, "Reading PDF files", "it is no PDF, or is damaged or incomplete"), PDFIUM:
        _refuse_bombs(path.read_bytes())
        pages, about = _read(path)
    if not any(pages):
        raise unreadable(path, "its pages contain no text (a scan?); run text recognition (OCR) on it first")
    text, spans = markdown_pages(pages)
    title = " ".join(clean(about.get("Title", "")).split())
    yield ParsedDocument(
        text=text,
        markup="markdown",
        title=first_heading(text) if not title or title.lower().startswith(_PLACEHOLDER_TITLES) else title,
        pages=spans,
        metadata=author_metadata(about.get("Author")),
    )


def _refuse_bombs(file: bytes) -> None:
    """Refuse a file with a deflated stream that unpacks to far more than a page; PDFium would unpack it whole."""
    for start in _STREAM.finditer(file):
        dictionary = file[max(0, start.start() - _DICTIONARY) : start.start()].rpartition(b" obj")[2]
        is_content = _NO_CONTENT.search(dictionary) is None
        for unpacked in _unpacked(file, start.end()):
            content, size = bytearray(), 0
            for piece in unpacked:
                size += len(piece)
                if size > (_MOST_IMAGE if b"/Image" in dictionary else _MOST_CONTENT if is_content else _MOST_OTHER):
                    msg = "a part of it would unpack to more than is read of a page"
                    raise RefusedError(msg)
                if is_content:
                    content += piece
            if _cost(content) > _MOST_COST:
                msg = "a page of it has more text or drawings than is read of one"
                raise RefusedError(msg)
            if not size:
                break


def _cost(content: bytes | bytearray) -> int:
    """Estimate the bytes of memory that PDFium takes for the content of a page, by its text and operators."""
    text = sum(len(string[0]) - 2 for string in _STRING.finditer(content))
    return 330 * text + 300 * len(_OPERATOR.findall(content)) + 165 * content.count(b"q")


def _unpacked(file: bytes, at: int) -> Iterator[Iterator[bytes]]:
    """Yield the data from an offset, inflated once, twice, and so on, each in small pieces."""
    for times in range(1, _MOST_FILTERS + 1):
        pieces: Iterator[bytes] = (file[start : start + _PIECE] for start in range(at, len(file), _PIECE))
        for _ in range(times):
            pieces = _inflated(pieces)
        yield pieces


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Inflate data in small pieces, until it ends or is not deflated."""
    unpacker = zlib.decompressobj()
    with suppress(zlib.error):
        for piece in pieces:
            rest = piece
            while rest and not unpacker.eof:
                yield unpacker.decompress(rest, _PIECE)
                rest = unpacker.unconsumed_tail
            if unpacker.eof:
                return


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
        left = MOST_CHARACTERS
        for number in range(len(document)):
            with closing(document[number]) as page, closing(page.get_textpage()) as text_page:
                left -= text_page.count_chars()
                if left < 0:
                    msg = f"its text has more than {MOST_CHARACTERS:,} characters; split it"
                    raise RefusedError(msg)
                pages.append(lines_of_page(raw, text_page, page.get_height()))
        return pages, document.get_metadata_dict()
