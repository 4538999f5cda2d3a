"""Where a passage stands on a page of its PDF, and the picture of that page."""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import closing, contextmanager
from ctypes import byref, c_double, c_int
from dataclasses import dataclass
from difflib import SequenceMatcher
from io import BytesIO
from itertools import accumulate, pairwise
from math import sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

from retrieval_core.ingest.readers.base import RefusedError, vendor
from retrieval_core.ingest.readers.pdf import PDFIUM, reading_order

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from pathlib import Path

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom, in points from the upper left corner of the page as it is shown."""

_WORD = re.compile(r"[^\W_]+")
_FEWEST_WORDS = 3
"""Words in a row that are taken for the passage's; fewer may stand anywhere on a page."""
_MOST_WORDS = 20_000
_STEPS = 100
"""Parts of a point that places are told in."""
MOST_PIXELS = 16_000_000


@dataclass(frozen=True, slots=True)
class PlaceOnPage:
    """Where a passage stands on a page.

    Attributes:
        page: Its number, from 1.
        pages: How many the document has.
        width: Of the page as it is shown, in points.
        height: Likewise.
        boxes: Around the lines of the passage; none where its words are not found.
    """

    page: int
    pages: int
    width: float
    height: float
    boxes: tuple[Box, ...]


def place_on_page(file: bytes, path: Path, number: int, text: str) -> PlaceOnPage:
    """Return where a passage stands on a page.

    The reader leaves out running heads, joins divided words and adds markup, so the passage's words are looked for in
    the order of the page; those that stand on other pages are not found.

    Args:
        file: The PDF.
        path: Its name, for messages.
        number: Of the page, from 1.
        text: The passage.

    Raises:
        MissingExtraError: pypdfium2 is not installed.
        UnreadableFileError: The file is no PDF, or has no such page.
    """
    with _opened(file, path, number) as (raw, page, pages), closing(page.get_textpage()) as text_page:
        order, shown = reading_order(raw, text_page)
        width, height = page.get_size()
        boxes = [
            box
            for start, end in places_of_words(shown, text)
            for box in _boxes(raw, page, text_page, [at for at in order[start:end] if at is not None])
        ]
    return PlaceOnPage(number, pages, width, height, tuple(_merged(boxes)))


def picture_of_page(file: bytes, path: Path, number: int, width: int) -> bytes:
    """Return a page as a picture, in PNG.

    Args:
        file: The PDF.
        path: Its name, for messages.
        number: Of the page, from 1.
        width: In pixels; less where the picture would have more than :data:`MOST_PIXELS`.

    Raises:
        MissingExtraError: pypdfium2 is not installed.
        UnreadableFileError: The file is no PDF, or has no such page.
    """
    with _opened(file, path, number) as (_, page, _pages):
        across, down = page.get_size()
        scale = min(width / across, sqrt(MOST_PIXELS / (across * down)))
        with closing(page.render(scale=scale)) as bitmap:
            picture = bitmap.to_pil().copy()
    written = BytesIO()
    picture.save(written, "PNG")
    return written.getvalue()


@contextmanager
def _opened(file: bytes, path: Path, number: int) -> Generator[tuple[Any, Any, int]]:
    """Open a page: PDFium's functions, the page, and how many there are."""
    with vendor(path, "Reading PDF files", "it is no PDF, or is damaged or incomplete"), PDFIUM:
        import pypdfium2  # noqa: PLC0415 - an extra

        document: Any = pypdfium2.PdfDocument(file)
        with closing(document):
            pages = len(document)
            if not 1 <= number <= pages:
                msg = f"it has no page {number}"
                raise RefusedError(msg)
            with closing(document[number - 1]) as page:
                yield pypdfium2.raw, page, pages


def places_of_words(shown: str, text: str) -> list[tuple[int, int]]:
    """Return the parts of a page's text that hold the words of a passage, in order.

    Args:
        shown: The text of the page.
        text: The passage, which may begin or end on another page.
    """
    page, passage = list(_WORD.finditer(shown)), [found[0] for found in _WORD.finditer(text)]
    if not page or not passage:
        return []
    words = [found[0] for found in page]
    if (whole := _whole(words, passage)) is not None:
        first, last = whole
        return [(page[first].start(), page[last].end())]
    if len(words) > _MOST_WORDS:
        return []
    fewest = min(_FEWEST_WORDS, len(passage))
    blocks = [
        (block.a, block.b, block.size)
        for block in SequenceMatcher(None, words, passage, autojunk=False).get_matching_blocks()
        if block.size >= fewest
    ]
    parts: list[tuple[int, int]] = []
    ends = (-1, -1)
    for at, own, size in blocks:
        # What lies between was only divided otherwise, as words at line ends are.
        goes_on = ends[0] >= 0 and "".join(words[ends[0] : at]) == "".join(passage[ends[1] : own])
        parts[-1:] = [(parts[-1][0], at + size)] if goes_on else [*parts[-1:], (at, at + size)]
        ends = (at + size, own + size)
    return [(page[first].start(), page[last - 1].end()) for first, last in parts]


def _whole(words: Sequence[str], passage: Sequence[str]) -> tuple[int, int] | None:
    """Return the first and the last word of a page that a whole passage takes, however words are divided."""
    letters, wanted = "".join(words), "".join(passage)
    ends = list(accumulate(map(len, words)))
    starts = {0, *ends}
    at = letters.find(wanted)
    while at >= 0 and not (at in starts and at + len(wanted) in starts):
        at = letters.find(wanted, at + 1)
    return None if at < 0 else (bisect_right(ends, at), bisect_right(ends, at + len(wanted) - 1))


def _boxes(raw: Any, page: Any, text_page: Any, indexes: Sequence[int]) -> Iterable[Box]:
    """Yield boxes around characters, a line at a time."""
    for first, last in _runs(sorted(indexes)):
        for number in range(text_page.count_rects(first, last - first + 1)):
            left, bottom, right, top = text_page.get_rect(number)
            corners = [_shown(raw, page, *corner) for corner in ((left, top), (right, bottom))]
            (one_x, one_y), (other_x, other_y) = corners
            yield min(one_x, other_x), min(one_y, other_y), max(one_x, other_x), max(one_y, other_y)


def _runs(indexes: Sequence[int]) -> Iterable[tuple[int, int]]:
    if not indexes:
        return
    start = indexes[0]
    for before, after in pairwise(indexes):
        if after > before + 1:
            yield start, before
            start = after
    yield start, indexes[-1]


def _shown(raw: Any, page: Any, x: float, y: float) -> tuple[float, float]:
    """Return where a point of a page's own coordinates is shown: pages may be turned and cropped."""
    width, height = page.get_size()
    across, down = c_int(), c_int()
    size = (round(width * _STEPS), round(height * _STEPS))
    raw.FPDF_PageToDevice(page, 0, 0, *size, 0, c_double(x), c_double(y), byref(across), byref(down))
    return across.value / _STEPS, down.value / _STEPS


def _merged(boxes: Iterable[Box]) -> list[Box]:
    """Join boxes that stand beside each other in a line."""
    merged: list[Box] = []
    for box in boxes:
        if merged and _are_beside(merged[-1], box):
            last = merged[-1]
            merged[-1] = (min(last[0], box[0]), min(last[1], box[1]), max(last[2], box[2]), max(last[3], box[3]))
        else:
            merged.append(box)
    return merged


def _are_beside(one: Box, other: Box) -> bool:
    lowest = min(one[3] - one[1], other[3] - other[1])
    together = min(one[3], other[3]) - max(one[1], other[1])
    between = max(one[0], other[0]) - min(one[2], other[2])
    return together >= lowest / 2 and between <= max(one[3] - one[1], other[3] - other[1])
