"""The reader of JSON lines; each line is a document."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.readers.base import MOST_NESTING, RefusedError, clean, unreadable
from retrieval_core.ingest.readers.columns import SAMPLE_ROWS, Layout, UniqueKey, find_columns
from retrieval_core.ingest.readers.encoding import detect_encoding

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ingest.parsed import ParsedDocument
    from retrieval_core.ingest.readers.base import ReadOptions


def read_json_lines(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a file with one JSON object a line; blank lines do not count.

    The file is read twice, a line at a time, since a broken line or a repeated key must be known before the first row.
    """
    encoding = detect_encoding(path, options)
    layout = _survey(path, encoding, options)
    for number, row in _rows(path, encoding):
        document = layout.document(row, number)
        if document is not None:
            yield document


def _survey(path: Path, encoding: str, options: ReadOptions) -> Layout:
    key = UniqueKey()
    sample: list[dict[str, Any]] = []
    for number, row in _rows(path, encoding):
        key.see(row)
        if number <= SAMPLE_ROWS:
            sample.append(row)
    if not sample:
        raise unreadable(path, "it contains no rows")
    text, title = find_columns(sample, path, options)
    return Layout(text, title, key.column, options.columns)


def _rows(path: Path, encoding: str) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    # Only \n ends a line: JSON text may hold every other separator as it is.
    with path.open(encoding=encoding, errors="replace", newline="\n") as file:
        for line_number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row: object = _value(json.loads(line))
            except (RefusedError, ValueError, RecursionError) as exc:
                reason = exc.msg if isinstance(exc, json.JSONDecodeError) else "nested too deeply, or a number too long"
                raise unreadable(path, f"line {line_number} is not JSON: {reason}") from exc
            if not isinstance(row, dict):
                raise unreadable(path, f"line {line_number} is not a JSON object")
            number += 1
            yield number, cast("dict[str, Any]", row)


def _value(value: Any, level: int = 0) -> Any:
    """Return a parsed value with clean text, and ``None`` for NaN and Infinity, which Python reads and JSON lacks."""
    if level > MOST_NESTING:
        raise RefusedError
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {clean(name): _value(item, level + 1) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_value(item, level + 1) for item in cast("list[Any]", value)]
    return value
