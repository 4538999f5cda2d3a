"""Readers of file formats.

Markdown, text, source code, CSV and JSON lines need no extra; the other formats need ``retrieval-core[documents]``.
Nothing is fetched from a network, and nothing in a document is executed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.ingest.languages import SUFFIXES, language_of
from retrieval_core.ingest.readers.base import ReadOptions, unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ParsedDocument

    Reader: TypeAlias = Callable[[Path, ReadOptions], Iterator[ParsedDocument]]

__all__ = ["ReadOptions", "is_supported", "read_file", "supported_suffixes"]

_READERS = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), ("markup", "read_markdown")),
    **dict.fromkeys((".txt", ".text", ".org", ".log"), ("markup", "read_plain")),
    **dict.fromkeys((".rst", ".adoc"), ("markup", "read_titled")),
    **dict.fromkeys((".csv", ".tsv"), ("rows", "read_csv")),
    **dict.fromkeys((".jsonl", ".ndjson"), ("rows", "read_json_lines")),
    **dict.fromkeys((".html", ".htm", ".xhtml"), ("markup", "read_html")),
    ".pdf": ("pdf", "read_pdf"),
    ".docx": ("office", "read_docx"),
    ".pptx": ("office", "read_pptx"),
    ".epub": ("office", "read_epub"),
    **dict.fromkeys((".xlsx", ".xlsm"), ("spreadsheet", "read_xlsx")),
    ".ipynb": ("code", "read_notebook"),
    **dict.fromkeys(SUFFIXES, ("code", "read_code")),
}
"""The module and the function of each reader: who only asks an index waits for none of them."""
_PLAIN_NAMES = frozenset((
    "authors", "changelog", "changes", "contributing", "copying", "history", "install", "license", "news", "notice",
    "pkg-info", "readme", "todo",
))  # fmt: skip
"""Names, in lower case, of texts without a suffix."""


def supported_suffixes() -> frozenset[str]:
    """Return the file name suffixes that :func:`read_file` knows, in lower case and with their dot."""
    return frozenset(_READERS)


def is_supported(path: Path) -> bool:
    """Return whether files of this name can be read, such as ``notes.md``, ``client.py`` or ``Dockerfile``."""
    return _reader_of(path) is not None


def _reader_of(path: Path) -> tuple[str, str] | None:
    name = path.name.lower()
    if (known := _READERS.get(path.suffix.lower())) is not None:
        return known
    if name in _PLAIN_NAMES:
        return ("markup", "read_plain")
    return ("code", "read_code") if language_of(path) is not None else None


def read_file(path: Path, options: ReadOptions | None = None) -> Iterator[ParsedDocument]:
    """Read one file, chosen by its name in any case.

    Tables give a document for each row, read as they are consumed; every other file is one document. None is empty.

    Raises:
        UnreadableFileError: The file cannot be read; nothing was yielded before.
        MissingExtraError: The format needs ``retrieval-core[documents]``.
    """
    if (known := _reader_of(path)) is None:
        raise unreadable(
            path, f"files of type {path.suffix!r} are not supported" if path.suffix else "it has no suffix"
        )
    module, function = known
    reader: Reader = getattr(import_module(f"{__name__}.{module}"), function)
    try:
        if not path.stat().st_size:
            raise unreadable(path, "it is empty")
        is_empty = True
        for document in reader(path, options or ReadOptions()):
            if document.text.strip():
                is_empty = False
                yield document
        if is_empty:
            raise unreadable(path, "it contains no text")
    except OSError as exc:
        raise unreadable(path, f"it cannot be opened: {exc.strerror or exc}") from exc
