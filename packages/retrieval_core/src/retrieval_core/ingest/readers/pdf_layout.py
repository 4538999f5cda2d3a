"""The Markdown of PDF pages, made of their lines: paragraphs, headings, words without hyphens."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from retrieval_core.ingest.parsed import ParsedPage
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from retrieval_core.ingest.readers.pdf_lines import Line

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
    total = sum(len(line.text) for line in _lines(everything))
    bold_is_special = sum(len(line.text) for line in _lines(everything) if line.bold) < total / 3
    headings = [each for each in everything if _is_heading(each, body, bold_is_special)]
    if sum(len(each.text) for each in headings) > _MOST_HEADINGS * total:
        return pages
    ranks = sorted({max(each.lines[0].size, body) for each in headings}, reverse=True)
    levels = {each: min(6, ranks.index(max(each.lines[0].size, body)) + 1) for each in headings}
    return [[Paragraph(each.lines, levels.get(each, 0)) for each in page] for page in pages]


def _lines(paragraphs: Iterable[Paragraph]) -> Iterator[Line]:
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
