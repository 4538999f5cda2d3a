"""HTML: the text of a page as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from retrieval_core.ingest.markdown import first_heading
from retrieval_core.ingest.parsed import ParsedDocument
from retrieval_core.ingest.readers.base import author_metadata, clean, vendor
from retrieval_core.ingest.readers.encoding import decode_markup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.ingest.readers.base import ReadOptions

NEEDED_FOR = "Reading HTML files"
_NOISE = [
    "nav",
    "footer",
    "dialog",
    ".noprint",
    "a[class*=skip]",
    "a[class*=jump]",
    "button",
    "[role=navigation]",
    "[role=search]",
    "[role=banner]",
    "[role=contentinfo]",
    "[aria-hidden=true]",
]
_MOST_NESTING = 1_000


def read_html(path: Path, _options: ReadOptions) -> Iterator[ParsedDocument]:
    """Read a page as one document; scripts, forms, navigation and the targets of links are left out."""
    markup = decode_markup(path.read_bytes(), path)
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

    Link targets and images are left out: they cost tokens and say nothing that is asked for.
    """
    from html_to_markdown import ConversionOptions, PreprocessingOptions, convert  # noqa: PLC0415 - an extra

    options = ConversionOptions(
        extract_metadata=False,
        skip_images=True,
        strip_tags=["a"],
        compact_tables=True,
        exclude_selectors=_NOISE,
        preprocessing=PreprocessingOptions(preset="aggressive"),
        max_depth=_MOST_NESTING,
    )
    return clean(convert(markup, options).content or "").strip("\n")


def _about(markup: str) -> tuple[str | None, str | None]:
    """Return the title and the author that the head of a page names."""
    from html_to_markdown import ConversionOptions, convert  # noqa: PLC0415 - an extra

    head = re.split(r"<body\b", markup, maxsplit=1, flags=re.IGNORECASE)[0]
    about = convert(head, ConversionOptions(extract_metadata=True)).metadata.document
    title = " ".join(clean(about.title or "").split())
    return title or None, about.author
