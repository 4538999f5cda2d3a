"""What all readers share: their options, their one error, and the guard around other people's code."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retrieval_core.errors import MissingExtraError, RetrievalError, UnreadableFileError
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from retrieval_core.ingest.report import ColumnNote

_NEWLINES = re.compile(r"\r\n?")
_LONGEST_LINE = 1_000
MOST_NESTING = 64
"""How deep the metadata of a file may be nested; everything behind the readers walks it recursively."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How tables are read; every other format says all there is to know about itself.

    Attributes:
        text_column: The column whose cells are the texts of the documents; ``None`` finds one, see
            :func:`retrieval_core.ingest.readers.columns.find_columns`.
        title_column: The column with their titles; ``None`` takes one with a well-known name, if there is any.
        columns: The metadata field that a column becomes, where that is not its own name.
        on_note: Called with what is worth knowing about a table, before its first row is read.
    """

    text_column: str | None = None
    title_column: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    on_note: Callable[[ColumnNote], object] = lambda _: None


class RefusedError(Exception):
    """Raised where a file would take too much time or memory, with the reason; :func:`vendor` adds which file."""


def unreadable(path: Path, reason: str) -> UnreadableFileError:
    """Return the error that a reader raises, with one sentence for people."""
    return UnreadableFileError(str(path), reason)


@contextmanager
def vendor(path: Path, needed_for: str, failure: str) -> Generator[None]:
    """Run a parsing library: let none of its own errors out.

    Args:
        path: The file being read.
        needed_for: What the library is for, ``"Reading PDF files"``.
        failure: What is wrong with the file when the library gives up.

    Raises:
        MissingExtraError: The library is not installed.
        UnreadableFileError: The library failed, or what it would have done was refused.
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
        extra = "documents"
        raise MissingExtraError(extra, needed_for) from exc
    except Exception as exc:
        raise unreadable(path, failure) from exc


def clean(text: str) -> str:
    """Return text with line feeds for all line ends, and without what no store can keep: NUL and lone surrogates."""
    return valid_unicode(_NEWLINES.sub("\n", text).replace("\0", ""))


def one_line(text: str | None) -> str:
    """Return a title or a name with single spaces, of a thousand characters at most; an empty text where is none."""
    return " ".join(clean((text or "")[:_LONGEST_LINE]).split())


def author_metadata(author: str | None) -> dict[str, str]:
    """Return the metadata of a document with this author, none where nobody is named."""
    name = one_line(author)
    return {"author": name} if name else {}
