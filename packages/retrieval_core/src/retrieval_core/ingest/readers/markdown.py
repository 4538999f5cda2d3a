"""The readers of plain text, and of Markdown with or without YAML front matter."""

from __future__ import annotations

import re
from datetime import date, datetime
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.base import MOST_NESTING, RefusedError, clean, unreadable
from retrieval_core.ingest.readers.encoding import read_text
from retrieval_core.text.markdown import first_heading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_MOST_VALUES = 10_000
_MOST_MERGES = 5
_TOO_DEEP = "its front matter is nested too deeply"


def read_plain(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a text file as one document."""
    yield ParsedDocument(text=read_text(path, options), markup="plain")


def read_markdown(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a Markdown file; its front matter becomes metadata and is no part of the text."""
    try:
        metadata, text = split_front_matter(read_text(path, options))
    except RefusedError as exc:
        raise unreadable(path, str(exc)) from exc
    title = metadata.get("title")
    yield ParsedDocument(
        text=text,
        markup="markdown",
        title=title.strip() if isinstance(title, str) and title.strip() else first_heading(text),
        metadata=metadata,
    )


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Return the fields of a YAML front matter and the text below it.

    A block that is not a YAML mapping is left in the text.

    Raises:
        RefusedError: It is nested too deeply, or has too many values.
    """
    match = _FRONT_MATTER.match(text)
    if match is None:
        return {}, text
    if match["yaml"].count("<<") > _MOST_MERGES:  # each may double what the one before it holds, while it is parsed
        msg = "its front matter has too many merge keys"
        raise RefusedError(msg)
    import yaml  # noqa: PLC0415 - most files have no front matter

    try:
        loaded: Any = yaml.safe_load(match["yaml"])
        fields: Any = _json_value({} if loaded is None else loaded, count(1))
    except RecursionError as exc:
        raise RefusedError(_TOO_DEEP) from exc
    except (yaml.YAMLError, ValueError):
        return {}, text
    return (fields, text[match.end() :]) if isinstance(loaded, dict) or loaded is None else ({}, text)


def _json_value(value: Any, seen: count[int], level: int = 0) -> Any:
    """Return a value of YAML as JSON's. They are counted, since aliases can make a few lines stand for billions."""
    if level > MOST_NESTING:
        raise RefusedError(_TOO_DEEP)
    if next(seen) > _MOST_VALUES:
        msg = f"its front matter has more than {_MOST_VALUES:,} values"
        raise RefusedError(msg)
    if isinstance(value, dict):
        return {str(key): _json_value(item, seen, level + 1) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set)):
        return [_json_value(item, seen, level + 1) for item in cast("list[Any]", value)]
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return value
    return str(value)
