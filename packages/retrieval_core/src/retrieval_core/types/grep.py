"""The result of a search for a pattern: lines of documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from retrieval_core.types.documents import PageSpan

GrepOutput: TypeAlias = Literal["lines", "files", "counts"]
"""What is returned of each document: its matching lines, only its name, or its name and the number of lines."""


@dataclass(frozen=True, slots=True)
class GrepLine:
    """A line of a document.

    Attributes:
        number: Line of the file for plain text, Markdown and source code; of the indexed text for other formats.
        text: The line. Long lines are cut around the match, with an ellipsis on each side that was cut.
        is_match: Whether the pattern matches; the others are around a match.
        page_span: First and last page of its chunk, if the document has pages or slides.
    """

    number: int
    text: str
    is_match: bool = True
    page_span: PageSpan | None = None


@dataclass(frozen=True, slots=True)
class GrepDocument:
    """A document with lines that match.

    Attributes:
        id: ID of the document.
        source: Path or URL.
        lines: Matching lines and those around them, in order; empty for the outputs ``files`` and ``counts``.
        count: Number of matching lines, for the output ``counts``.
    """

    id: str
    source: str | None = None
    lines: tuple[GrepLine, ...] = ()
    count: int | None = None


@dataclass(frozen=True, slots=True)
class GrepResult:
    """The documents with lines that match a pattern, ordered by their IDs.

    Attributes:
        documents: One page of them; its last one may go on with the next page.
        next_cursor: Cursor of the next page; ``None`` if everything was searched.
        timed_out: Whether the search timed out before the page was full. ``next_cursor`` continues
            it.
    """

    documents: tuple[GrepDocument, ...] = ()
    next_cursor: str | None = None
    timed_out: bool = False
