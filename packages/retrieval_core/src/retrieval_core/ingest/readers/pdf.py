"""PDF files: the lines of each page, in reading order, and the headings and tables among them."""

from __future__ import annotations

import re
import threading
import unicodedata
import zlib
from collections import Counter
from contextlib import closing, suppress
from ctypes import byref, c_double, c_int, create_string_buffer
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.readers.base import (
    MOST_CHARACTERS,
    ParsedDocument,
    ParsedPage,
    RefusedError,
    author_metadata,
    clean,
    unreadable,
    vendor,
)
from retrieval_core.text.markdown import first_heading
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

_HYPHEN_AT_LINE_END = "\x02"
_LINE_ENDS = frozenset(f"\r\n{_HYPHEN_AT_LINE_END}")
_BOLD_WEIGHT = 600
_BOLD_NAME = re.compile(r"bold|black|heavy|demi|medi$|BX\d+$", re.IGNORECASE)
_NAME_BYTES = 128
_LOOKS = 8
_UPRIGHT = 0.1
_RIGHT_TO_LEFT = frozenset({"R", "AL"})
_FIRST_RIGHT_TO_LEFT = "\u0590"  # no letter before it runs that way, and asking costs time


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text with its place on the page, in points from the lower left corner.

    Attributes:
        size: Font size of most of its characters.
        bold: Whether all sampled characters are.
        hyphenated: Whether its last word goes on in the next line; the hyphen is not in the text.
        height: Height of the page.
        upright: Whether it is not rotated, as notes in the margin often are.
    """

    text: str
    size: float
    bold: bool
    left: float
    right: float
    baseline: float
    height: float
    hyphenated: bool = False
    upright: bool = True


def lines_of_page(raw: Any, text_page: Any, height: float) -> list[Line]:
    """Return the lines of a page in the order of its content, which is that of reading in most documents.

    Args:
        raw: The module of PDFium's functions.
        text_page: PDFium's text page.
        height: Height of the page, in points.
    """
    characters = _characters(raw, text_page)
    glyphs = _Glyphs(raw, text_page)
    lines: list[Line] = []
    for indexes, end in _lines(characters):
        visible = [at for at in indexes if not characters[at].isspace() and characters[at] != "\0"]
        if visible:
            lines.append(glyphs.line(characters, indexes, visible, height, end == _HYPHEN_AT_LINE_END))
    return _join_rows(lines)


def reading_order(raw: Any, text_page: Any) -> tuple[list[int | None], str]:
    """Return the characters of a page as its lines have them: their numbers at PDFium, and the text.

    Both are equally long. Between lines there is a line feed, whose number is ``None``, and nothing behind a divided
    word.

    Args:
        raw: The module of PDFium's functions.
        text_page: PDFium's text page.
    """
    characters = _characters(raw, text_page)
    glyphs = _Glyphs(raw, text_page)
    order: list[int | None] = []
    for indexes, end in _lines(characters):
        order += glyphs.logical(characters, indexes)
        if end != _HYPHEN_AT_LINE_END:
            order.append(None)
    return order, "".join("\n" if at is None else characters[at] for at in order)


def _characters(raw: Any, text_page: Any) -> list[str]:
    return [chr(raw.FPDFText_GetUnicode(text_page, index)) for index in range(text_page.count_chars())]


def _lines(characters: Sequence[str]) -> Iterator[tuple[range, str]]:
    """Yield the numbers of a line's characters, and the character that ends it."""
    start = 0
    for index, character in enumerate((*characters, "\n")):
        if character in _LINE_ENDS:
            yield range(start, index), character
            start = index + 1


class _Glyphs:
    """Places and fonts of a page's characters, from PDFium."""

    def __init__(self, raw: Any, text_page: Any) -> None:
        self._raw = raw
        self._page = text_page

    def line(
        self, characters: Sequence[str], indexes: range, visible: Sequence[int], height: float, hyphenated: bool
    ) -> Line:
        looks = [self._look(at) for at in visible[:: 1 + len(visible) // _LOOKS]]
        boxes = [self._box(visible[0]), self._box(visible[-1])]
        text = clean("".join(characters[at] for at in self.logical(characters, indexes)))
        return Line(
            text=" ".join(text.split()),
            size=Counter(size for size, _ in looks).most_common(1)[0][0],
            bold=all(bold for _, bold in looks),
            left=min(box[0] for box in boxes),
            right=max(box[1] for box in boxes),
            baseline=self._baseline(visible[0]),
            height=height,
            hyphenated=hyphenated,
            upright=abs(self._raw.FPDFText_GetCharAngle(self._page, visible[0])) < _UPRIGHT,
        )

    def logical(self, characters: Sequence[str], indexes: range) -> Iterator[int]:
        """Yield the numbers of a line's characters, the letters of right-to-left ligatures in the order of speech.

        PDFium turns around whole lines, the letters of one glyph with them. They share that glyph's box.
        """
        ligature: list[int] = []
        box: tuple[float, float] | None = None
        for index in indexes:
            character = characters[index]
            is_rtl = character >= _FIRST_RIGHT_TO_LEFT and unicodedata.bidirectional(character) in _RIGHT_TO_LEFT
            own_box = self._box(index) if is_rtl else None
            if ligature and own_box != box:
                yield from reversed(ligature)
                ligature = []
            box = own_box
            if is_rtl:
                ligature.append(index)
            else:
                yield index
        yield from reversed(ligature)

    def _look(self, index: int) -> tuple[float, bool]:
        """Return the size of a character in half points, as it is drawn, and whether it is bold."""
        matrix = self._raw.FS_MATRIX()
        self._raw.FPDFText_GetMatrix(self._page, index, byref(matrix))
        size = self._raw.FPDFText_GetFontSize(self._page, index) * hypot(matrix.c, matrix.d)
        name, flags = create_string_buffer(_NAME_BYTES), c_int()
        self._raw.FPDFText_GetFontInfo(self._page, index, name, _NAME_BYTES, byref(flags))
        heavy = self._raw.FPDFText_GetFontWeight(self._page, index) >= _BOLD_WEIGHT
        return round(size * 2) / 2, heavy or _BOLD_NAME.search(name.value.decode("utf-8", "replace")) is not None

    def _box(self, index: int) -> tuple[float, float]:
        left, right, bottom, top = (c_double() for _ in range(4))
        self._raw.FPDFText_GetCharBox(self._page, index, byref(left), byref(right), byref(bottom), byref(top))
        return left.value, right.value

    def _baseline(self, index: int) -> float:
        x, y = c_double(), c_double()
        self._raw.FPDFText_GetCharOrigin(self._page, index, byref(x), byref(y))
        return y.value


def _join_rows(lines: Sequence[Line]) -> list[Line]:
    """Join lines that PDFium splits at raised or lowered characters."""
    rows: list[Line] = []
    for line in lines:
        if not rows or not _same_row(rows[-1], line):
            rows.append(line)
            continue
        row = rows[-1]
        text = f"{row.text}{' ' if line.left - row.right > 0.15 * row.size else ''}{line.text}"
        longer = row if len(row.text) >= len(line.text) else line
        rows[-1] = replace(longer, text=text, left=row.left, right=line.right, hyphenated=line.hyphenated)
    return rows


def _same_row(row: Line, line: Line) -> bool:
    size = max(row.size, line.size)
    return (
        not row.hyphenated
        and row.upright
        and line.upright
        and abs(row.baseline - line.baseline) < 0.6 * size
        and -0.3 * size < line.left - row.right < 2 * size
    )


_BULLET = re.compile(r"[•●▪◦‣∙–-]\s+(?=\S)")  # noqa: RUF001
_NUMBERED = re.compile(r"\(?(?:\d{1,2}|[a-z])[.)]\s+\S")
_ENDS_SENTENCE = re.compile(r"[.!?:;…。！？؟۔][\"'”’»)\]]*$")  # noqa: RUF001
_STARTS_MARKUP = re.compile(r"(?=#|>|<|`{3}|~{3}|\||=+$|-+$|\[[^\]]*\]:)")
_WORD = re.compile(r"\w+(?:-\w+)*")
_LAST_WORD = re.compile(r"[\w-]*\w$")
_FIRST_WORD = re.compile(r"\w[\w-]*")

_MARGIN = 0.09
_LARGER = 1.12
_LONGEST_HEADING = 160
_LONGEST_BOLD_HEADING = 80
_MOST_HEADINGS = 0.2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Lines that belong together; ``level`` is 0, or that of a heading."""

    lines: tuple[Line, ...]
    level: int = 0

    @property
    def text(self) -> str:
        """Its lines as on the page."""
        return "\n".join(line.text for line in self.lines)


def markdown_pages(pages: Sequence[Sequence[Line]]) -> tuple[str, tuple[ParsedPage, ...]]:
    """Return the pages as one Markdown text, and the span of each in it; pages without text are left out."""
    without_heads = _without_running_heads(pages)
    body = _body_size(without_heads)
    paragraphs = _with_headings([_paragraphs(lines, body) for lines in without_heads], body)
    words = Counter(word.lower() for lines in without_heads for line in lines for word in _WORD.findall(line.text))
    text = ""
    spans: list[ParsedPage] = []
    last: Paragraph | None = None
    for number, page in enumerate(paragraphs, start=1):
        if not page:
            continue
        text += "" if last is None else "\n" if _goes_on(last, page[0], body) else "\n\n"
        start = len(text)
        text += "\n\n".join(_markdown(paragraph, words) for paragraph in page)
        spans.append(ParsedPage(number, Span(start, len(text))))
        last = page[-1]
    return text, tuple(spans)


def _without_running_heads(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Leave out lines in the margins of at least half of the pages, and of three; all digits count as equal."""
    seen = Counter(key for page in pages for key in {_running_head(line) for line in page})
    often = max(3, len(pages) / 2)
    return [[line for line in page if (key := _running_head(line)) is None or seen[key] < often] for page in pages]


def _running_head(line: Line) -> str | None:
    in_margin = not _MARGIN < line.baseline / line.height < 1 - _MARGIN
    return re.sub(r"\d+", "0", line.text) if in_margin else None


def _body_size(pages: Iterable[Iterable[Line]]) -> float:
    """Return the font size of most of the text."""
    sizes = Counter[float]()
    for page in pages:
        for line in page:
            sizes[line.size] += len(line.text)
    return max(sizes, key=lambda size: sizes[size], default=0.0)


def _paragraphs(lines: Sequence[Line], body: float) -> list[Paragraph]:
    steps = [before.baseline - after.baseline for before, after in pairwise(lines) if _alike(before, after, body)]
    leading = median([step for step in steps if step > 0] or [0.0])
    paragraphs: list[list[Line]] = []
    for line in lines:
        if not paragraphs or _begins_paragraph(paragraphs[-1], line, leading, body):
            paragraphs.append([])
        paragraphs[-1].append(line)
    return [Paragraph(tuple(each)) for each in paragraphs]


def _alike(before: Line, after: Line, body: float) -> bool:
    return (
        abs(before.size - after.size) <= 0.08 * before.size
        and (before.bold == after.bold or before.size >= _LARGER * body)
        and before.upright == after.upright
    )


def _begins_paragraph(lines: Sequence[Line], line: Line, leading: float, body: float) -> bool:
    """Whether a line begins a paragraph, by its look, its place and the end of the line before it."""
    last = lines[-1]
    if last.hyphenated:
        return False
    if not _alike(last, line, body) or _BULLET.match(line.text) or _NUMBERED.match(line.text):
        return True
    step = last.baseline - line.baseline
    ended = _ENDS_SENTENCE.search(last.text) is not None
    if step < 0:  # at the top of the next column
        return ended or not _continues(line.text)
    if step > 1.35 * max(leading, line.size):
        return True
    is_indented = 0.7 * line.size < line.left - last.left < 5 * line.size and line.right >= last.right - line.size
    is_short = last.right < max(each.right for each in (*lines, line)) - 3 * line.size
    return ended and (is_indented or is_short)


def _continues(text: str) -> bool:
    return text[:1].islower()


def _goes_on(last: Paragraph, first: Paragraph, body: float) -> bool:
    """Whether a paragraph goes on at the top of the next page."""
    both_text = not last.level and not first.level and _alike(last.lines[-1], first.lines[0], body)
    return both_text and not _ENDS_SENTENCE.search(last.text) and _continues(first.text)


def _with_headings(pages: list[list[Paragraph]], body: float) -> list[list[Paragraph]]:
    """Mark the headings: short paragraphs in larger type, or in bold where the body is not.

    There are none where these would be more than a fifth of the text: size and weight then mean something else.
    """
    everything = [paragraph for page in pages for paragraph in page]
    total = sum(len(line.text) for line in _lines_of(everything))
    bold_is_special = sum(len(line.text) for line in _lines_of(everything) if line.bold) < total / 3
    headings = [each for each in everything if _is_heading(each, body, bold_is_special)]
    if sum(len(each.text) for each in headings) > _MOST_HEADINGS * total:
        return pages
    ranks = sorted({max(each.lines[0].size, body) for each in headings}, reverse=True)
    levels = {each: min(6, ranks.index(max(each.lines[0].size, body)) + 1) for each in headings}
    return [[Paragraph(each.lines, levels.get(each, 0)) for each in page] for page in pages]


def _lines_of(paragraphs: Iterable[Paragraph]) -> Iterator[Line]:
    return (line for paragraph in paragraphs for line in paragraph.lines)


def _is_heading(paragraph: Paragraph, body: float, bold_is_special: bool) -> bool:
    text, first = paragraph.text, paragraph.lines[0]
    words = text.split()
    names = sum(word[0].isalpha() for word in words)
    if not first.upright or names * 2 < len(words) or len(text) > _LONGEST_HEADING or _BULLET.match(text):
        return False
    if first.size >= _LARGER * body:
        return True
    is_short = len(text) <= _LONGEST_BOLD_HEADING and len(paragraph.lines) == 1 and not _ENDS_SENTENCE.search(text)
    return bold_is_special and first.bold and first.size >= 0.95 * body and is_short


def _markdown(paragraph: Paragraph, words: Counter[str]) -> str:
    joined = _join_lines(paragraph.lines, words)
    if paragraph.level:
        return f"{'#' * paragraph.level} {' '.join(joined.split())}"
    escaped = "\n".join(
        _STARTS_MARKUP.sub("\\\\", line, count=1) if _STARTS_MARKUP.match(line) else line for line in joined.split("\n")
    )
    return _BULLET.sub("- ", escaped, count=1) if _BULLET.match(escaped) else escaped


def _join_lines(lines: Sequence[Line], words: Counter[str]) -> str:
    text = ""
    for line, following in pairwise(lines):
        text += line.text + (_hyphen(line.text, following.text, words) if line.hyphenated else "\n")
    return text + lines[-1].text + ("-" if lines[-1].hyphenated else "")


def _hyphen(before: str, after: str, words: Counter[str]) -> str:
    """Return the joint of a divided word: nothing, or a hyphen.

    The document's other spellings of the word decide; without one, a hyphen stays before capitals and digits only, as
    in "Lucene-BM25".
    """
    head, tail = _LAST_WORD.search(before), _FIRST_WORD.match(after)
    if head is None or tail is None:
        return "-"
    whole, hyphenated = (f"{head[0]}{joint}{tail[0]}".lower() for joint in ("", "-"))
    if words[whole] != words[hyphenated]:
        return "" if words[whole] > words[hyphenated] else "-"
    return "" if tail[0][0].islower() else "-"


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
