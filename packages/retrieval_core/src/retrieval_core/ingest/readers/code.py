"""Source code and structured text: one document for each file, as it is, and notebooks as Markdown."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.languages import language_of
from retrieval_core.ingest.readers.base import ParsedDocument, clean, read_text, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions


def read_code(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a file of code or structured text as one document."""
    yield ParsedDocument(text=read_text(path, options), markup="code", language=language_of(path))


def read_notebook(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read the cells of a Jupyter notebook as Markdown; outputs are left out."""
    try:
        notebook: Any = json.loads(read_text(path, options))
        cells = list(_cells(notebook))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(path, "it is not a Jupyter notebook") from error
    yield ParsedDocument(text="\n\n".join(cells), markup="markdown")


def _cells(notebook: Any) -> Iterator[str]:
    """Yield the cells that have text: prose as it is, code in fences."""
    about: dict[str, Any] = notebook.get("metadata", {})
    language = str(about.get("language_info", {}).get("name") or about.get("kernelspec", {}).get("language") or "")
    worksheets: list[Any] = notebook.get("worksheets", [])  # of version 3
    cells = notebook["cells"] if "cells" in notebook else [cell for sheet in worksheets for cell in sheet["cells"]]
    for cell in cast("list[dict[str, Any]]", cells):
        source: Any = cell.get("source", cell.get("input", ""))
        text = clean(source if isinstance(source, str) else "".join(source)).strip("\n")
        if not text.strip():
            continue
        if cell["cell_type"] != "code":
            yield text
            continue
        fence = next(mark for length in count(3) if (mark := "`" * length) not in text)
        yield f"{fence}{language}\n{text}\n{fence}"
