"""Pages of a range of text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from retrieval_core.types import PageSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ingest.parsed import ParsedPage
    from retrieval_core.types import Span


def page_span(span: Span, pages: Sequence[ParsedPage]) -> PageSpan | None:
    """Return the first and last page that a range of the text touches, ``None`` if it touches none."""
    first = bisect_right(pages, span.start, key=lambda page: page.span.end)
    last = bisect_left(pages, span.end, key=lambda page: page.span.start) - 1
    return PageSpan(pages[first].number, pages[last].number) if first <= last else None
