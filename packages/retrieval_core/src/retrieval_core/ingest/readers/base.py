"""Share options, errors, cleaned text and parsed documents between readers."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from retrieval_core.errors import MissingExtraError, RetrievalError, UnreadableFileError
from retrieval_core.types import FrozenDict, Metadata, PageSpan
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ingest.report import Note
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


_NEWLINES = re.compile(r"\r\n?")
_LONGEST_LINE = 1_000
MOST_CHARACTERS = 16_000_000
"""Characters of the text of one document, some 5,000 pages."""
MOST_NESTING = 64
"""The deepest nesting of a file's metadata, which is walked recursively."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read; only tables have columns.

    Attributes:
        text_column: The column with the documents' texts; ``None`` finds one, see
            :func:`retrieval_core.ingest.readers.rows.find_columns`.
        columns: The metadata field of a column, if it differs from the column's name.
        on_note: Called with each warning about the file, before its first document is returned.
    """

    text_column: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    on_note: Callable[[Note], object] = lambda _: None


class RefusedError(Exception):
    """A file would take too much time or memory; :func:`vendor` adds the file's name to the reason."""


def unreadable(path: Path, reason: str) -> UnreadableFileError:
    """Return a reader's error, with a reason for people."""
    return UnreadableFileError(str(path), reason)


@contextmanager
def vendor(path: Path, needed_for: str, failure: str) -> Generator[None]:
    """Translate the errors of a parsing library.

    Args:
        path: The file being read.
        needed_for: The library's purpose, such as ``"Reading PDF files"``.
        failure: The reason to give where the library raises.

    Raises:
        MissingExtraError: The library is not installed.
        UnreadableFileError: The library failed, or :class:`RefusedError` was raised.
    """
    try:
        yield
    except RetrievalError:
        raise
    except RefusedError as exc:
        raise unreadable(path, str(exc)) from exc
    except RecursionError as exc:
        raise unreadable(path, "it is nested too deeply") from exc
    except ImportError as exc:
        raise MissingExtraError("documents", needed_for) from exc
    except Exception as exc:
        raise unreadable(path, failure) from exc


def clean(text: str) -> str:
    """Return text with line feeds for all line ends, and without what no store can keep: NUL and lone surrogates."""
    return valid_unicode(_NEWLINES.sub("\n", text).replace("\0", ""))


def one_line(text: str | None) -> str:
    """Return a title or a name on one line, cut after a thousand characters; empty for ``None``."""
    return " ".join(clean((text or "")[:_LONGEST_LINE]).split())


def author_metadata(author: str | None) -> dict[str, str]:
    """Return the metadata of a document with this author; empty without a name."""
    name = one_line(author)
    return {"author": name} if name else {}
