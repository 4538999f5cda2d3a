"""HTML, Markdown and plain text."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date, datetime
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.ingest.readers.base import (
    MOST_NESTING,
    ParsedDocument,
    RefusedError,
    author_metadata,
    clean,
    decode_markup,
    one_line,
    read_text,
    unreadable,
    vendor,
)
from retrieval_core.text.markdown import first_heading, titled_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from html_to_markdown import ConversionResult

    from retrieval_core.ingest.readers.base import ReadOptions

NEEDED_FOR = "Reading HTML files"
_NOISE = [
    "nav", "footer", "dialog", ".noprint", "a[class*=skip]", "a[class*=jump]", "button", "[role=navigation]",
    "[role=search]", "[role=banner]", "[role=contentinfo]", "[aria-hidden=true]",
]  # fmt: skip
_MOST_NESTING = 1_000
_MOST_INDENTATION = 10
_MOST_ATTRIBUTES = 5_000
_MOST_GRID_CELLS = 10_000_000
_LONG_TAG = 10_000

_TAG = re.compile(r"<[a-zA-Z][^\"'>]*+(?:(?:\"[^\"]*+\"|'[^']*+')[^\"'>]*+)*+")
_ANY_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*+)[^\"'>]*+(?:(?:\"[^\"]*+\"|'[^']*+')[^\"'>]*+)*+>?")
_OFTEN_UNCLOSED = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
    "html", "head", "body", "p", "li", "dt", "dd", "tr", "td", "th", "thead", "tbody", "tfoot", "colgroup", "caption",
    "option", "optgroup", "rb", "rt", "rtc", "rp",
))  # fmt: skip
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
_SEPARATORS = re.compile(r"[\s/]+")
_INDENTING_TAGS = ["blockquote", "ul", "ol", "li"]
_INDENTING = re.compile(r"<(/?)(blockquote|ul|ol|dl|menu|dir)\b", re.IGNORECASE)
_TABLE_PART = re.compile(r"<(?:(/?(?:tr|table))\b|t[dh]\b([^>]*))", re.IGNORECASE)
_COLUMNS = re.compile(r"colspan\s*=\s*[\"']?\s*(\d{1,9})", re.IGNORECASE)
_MOST_COLUMNS = 1_000


def read_html(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a page as one document; scripts, forms, navigation and the targets of links are left out."""
    markup = decode_markup(path.read_bytes(), path, options)
    with vendor(path, NEEDED_FOR, "its HTML cannot be parsed"):
        text = to_markdown(markup)
        title, author = _about(markup)
    heading = first_heading(text)
    # Pages add the name of their site to the title, and not to the heading.
    if heading and (not title or heading in title):
        title = heading
    yield ParsedDocument(text=text, markup="markdown", title=title, metadata=author_metadata(author))


def to_markdown(markup: str) -> str:
    """Return the text of an HTML page as Markdown.

    Link targets and images are left out, as they cost tokens. Lists and quotations that are nested more than ten deep
    lose their marks, since every line in them would grow with their depth.

    Raises:
        RefusedError: It would take too much time or memory.
    """
    _refuse_expanding(markup)
    strip = ["a", *_INDENTING_TAGS] if _indentation(markup) > _MOST_INDENTATION else ["a"]
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert  # noqa: PLC0415 - an extra

    options = ConversionOptions(
        extract_metadata=False,
        skip_images=True,
        strip_tags=strip,
        compact_tables=True,
        exclude_selectors=_NOISE,
        preprocessing=PreprocessingOptions(preset="aggressive"),
        max_depth=_MOST_NESTING,
    )
    converted = convert(markup, options)
    if _is_cut(converted):
        converted = convert(_flatten(markup), options)
    if _is_cut(converted):
        msg = "it is nested too deeply"
        raise RefusedError(msg)
    return clean(converted.content or "").strip("\n")


def _is_cut(converted: ConversionResult) -> bool:
    """Whether the converter left out what is nested deeper than :data:`_MOST_NESTING`."""
    return any(str(warning.kind) == "depth_limit_exceeded" for warning in converted.warnings)


def _flatten(markup: str) -> str:
    """Return a page without the tags that are nested deeper than half of :data:`_MOST_NESTING`, but with their text.

    Elements whose end tags may be missing don't count: a page may have thousands of paragraphs that are never closed.
    """
    parts: list[str] = []
    depth = at = 0
    for tag in _ANY_TAG.finditer(markup):
        if tag[2].lower() in _OFTEN_UNCLOSED:
            continue
        depth = max(0, depth - 1) if tag[1] else depth + 1
        if depth + bool(tag[1]) > _MOST_NESTING // 2:
            parts.append(markup[at : tag.start()])
            at = tag.end()
    return "\n".join([*parts, markup[at:]])


def _refuse_expanding(markup: str) -> None:
    """Refuse a tag with so many attributes, and tables of such a width, that the converter takes quadratic time."""
    for tag in _TAG.finditer(markup):
        is_long = tag.end() - tag.start() > _LONG_TAG
        if is_long and len(_SEPARATORS.findall(_QUOTED.sub("", tag[0]))) > _MOST_ATTRIBUTES:
            msg = f"it has a tag with more than {_MOST_ATTRIBUTES:,} attributes"
            raise RefusedError(msg)
    rows = width = widest = 0
    for part in _TABLE_PART.finditer(markup):
        if part[1] is not None:
            rows, width = rows + 1, 0
        else:
            columns = _COLUMNS.search(part[2])
            width += min(_MOST_COLUMNS, int(columns[1])) if columns else 1
            widest = max(widest, width)
    if rows * widest > _MOST_GRID_CELLS:
        msg = "its tables would have too many cells once all rows are as wide as the widest"
        raise RefusedError(msg)


def _indentation(markup: str) -> int:
    """Return the deepest nesting of lists and quotations."""
    deepest = 0
    depths = Counter[str]()
    for slash, name in _INDENTING.findall(markup):
        kind = name.lower()
        depths[kind] = max(0, depths[kind] + (-1 if slash else 1))
        deepest = max(deepest, depths.total())
    return deepest


def _about(markup: str) -> tuple[str | None, str | None]:
    """Return the title and the author in the head of a page."""
    from html_to_markdown import ConversionOptions, convert  # noqa: PLC0415 - an extra

    head = re.split(r"</head\b|<body\b", markup, maxsplit=1, flags=re.IGNORECASE)[0]
    options = ConversionOptions(extract_metadata=True, strip_tags=_INDENTING_TAGS)
    about = convert(head, options).metadata.document
    return one_line(about.title) or None, about.author


_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?P<yaml>.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_MOST_VALUES = 10_000
_MOST_MERGES = 5
_TOO_DEEP = "its front matter is nested too deeply"


def read_plain(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a text file as one document."""
    yield ParsedDocument(text=read_text(path, options), markup="plain")


def read_titled(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read reStructuredText or AsciiDoc, whose titles are the sections, as one document."""
    text = read_text(path, options)
    title = next((block.title for block in titled_blocks(text) if block.kind == "heading"), None)
    yield ParsedDocument(text=text, markup="titled", title=title)


def read_markdown(path: Path, options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a Markdown file; its front matter becomes metadata and is no part of the text."""
    try:
        whole = read_text(path, options)
        metadata, text = split_front_matter(whole)
    except RefusedError as exc:
        raise unreadable(path, str(exc)) from exc
    title = metadata.get("title")
    yield ParsedDocument(
        text=text,
        markup="markdown",
        title=title.strip() if isinstance(title, str) and title.strip() else first_heading(text),
        metadata=metadata,
        first_line=1 + whole.count("\n") - text.count("\n"),
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
