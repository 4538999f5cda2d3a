"""Readers of file formats.

Markdown, text, CSV and JSON lines need no extra; the other formats need ``retrieval-core[documents]``. Nothing is
fetched from a network, and nothing in a document is executed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.ingest.readers.base import ReadOptions, unreadable
from retrieval_core.ingest.readers.csv_rows import read_csv
from retrieval_core.ingest.readers.epub import read_epub
from retrieval_core.ingest.readers.html import read_html
from retrieval_core.ingest.readers.json_rows import read_json_lines
from retrieval_core.ingest.readers.markdown import read_markdown, read_plain
from retrieval_core.ingest.readers.pdf import read_pdf
from retrieval_core.ingest.readers.slides import read_pptx
from retrieval_core.ingest.readers.word import read_docx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from retrieval_core.ingest.parsed import ParsedDocument

    Reader: TypeAlias = Callable[[Path, ReadOptions], Iterator[ParsedDocument]]

__all__ = ["ReadOptions", "read_file", "supported_suffixes"]

_READERS: dict[str, Reader] = {
    **dict.fromkeys((".md", ".markdown", ".mdx"), read_markdown),
    **dict.fromkeys((".txt", ".text", ".rst", ".adoc", ".org", ".log"), read_plain),
    **dict.fromkeys((".csv", ".tsv"), read_csv),
    **dict.fromkeys((".jsonl", ".ndjson"), read_json_lines),
    **dict.fromkeys((".html", ".htm", ".xhtml"), read_html),
    ".pdf": read_pdf,
    ".docx": read_docx,
    ".pptx": read_pptx,
    ".epub": read_epub,
}


def supported_suffixes() -> frozenset[str]:
    """Return the file name suffixes that :func:`read_file` knows, in lower case and with their dot."""
    return frozenset(_READERS)


def read_file(path: Path, options: ReadOptions | None = None) -> Iterator[ParsedDocument]:
    """Read one file, chosen by its suffix in any case.

    Tables give a document for each row, read as they are consumed; every other file is one document. None is empty.

    Raises:
        UnreadableFileError: The file cannot be read; nothing was yielded before.
        MissingExtraError: The format needs ``retrieval-core[documents]``.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise unreadable(
            path, f"files of type {path.suffix!r} are not supported" if path.suffix else "it has no suffix"
        )
    try:
        if not path.stat().st_size:
            raise unreadable(path, "it is empty")
        is_empty = True
        for document in reader(path, options or ReadOptions()):
            if document.text.strip():
                is_empty = False
                yield document
        if is_empty:
            raise unreadable(path, "it holds no text")
    except OSError as exc:
        raise unreadable(path, f"it cannot be opened: {exc.strerror or exc}") from exc
