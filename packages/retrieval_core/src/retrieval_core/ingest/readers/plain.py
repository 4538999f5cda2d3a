"""The reader of plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.encoding import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions


def read_plain(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a text file as one document."""
    yield ParsedDocument(text=read_text(path), markup="plain")
