"""The lines of a PDF page, as PDFium sees them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from ctypes import byref, c_double, c_int, create_string_buffer
from dataclasses import dataclass, replace
from math import hypot
from typing import TYPE_CHECKING, Any

from retrieval_core.ingest.readers.base import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
