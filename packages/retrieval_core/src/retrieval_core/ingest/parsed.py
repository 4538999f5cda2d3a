"""What a reader makes of a file, before it is split."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.types import FrozenDict, Metadata, PageSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.types import Span

Markup: TypeAlias = Literal["markdown", "plain"]


@dataclass(frozen=True, slots=True)
class ParsedPage:
    """A page of a paged document: its number, from 1, and where its text lies in the document's text."""

    number: int
    span: Span


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """The text of one document and what its file says about it.

    Attributes:
        text: What all spans point into: Markdown where the file has structure, otherwise plain text.
        markup: Whether ``#``, fences and pipes in the text are structure or just characters.
        title: From the file's own metadata or first heading; ``None`` where there is neither.
        pages: In order and without overlaps; empty for formats without pages.
        metadata: Fields of the document itself: the other columns of a row, a Markdown file's front matter.
        row: Number of the row, from 1, where the document is a row of a table.
        key: What names the row within its file, from a column ``_id`` or ``id`` whose values are unique; else ``None``.
    """

    text: str
    markup: Markup
    title: str | None = None
    pages: tuple[ParsedPage, ...] = ()
    metadata: Metadata = field(default_factory=FrozenDict)
    row: int | None = None
    key: str | None = None


def page_span(span: Span, pages: Sequence[ParsedPage]) -> PageSpan | None:
    """Return the first and last page that a range of the text touches, ``None`` if it touches none."""
    first = bisect_right(pages, span.start, key=lambda page: page.span.end)
    last = bisect_left(pages, span.end, key=lambda page: page.span.start) - 1
    return PageSpan(pages[first].number, pages[last].number) if first <= last else None
